package io.sparkcrypt;

import java.util.function.Function;
import java.util.function.Predicate;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** A step on the nodes or messages that it applies to, as the partial function that Spark's interfaces take. */
final class PlanSteps<T, R> extends AbstractPartialFunction<T, R> {
  private static final long serialVersionUID = 1L;
  private final transient Predicate<T> judged;
  private final transient Function<T, R> step;

  PlanSteps(Predicate<T> judged, Function<T, R> step) {
    this.judged = judged;
    this.step = step;
  }

  @Override
  public boolean isDefinedAt(T node) {
    return judged.test(node);
  }

  @Override
  public <A extends T, B> B applyOrElse(A node, Function1<A, B> otherwise) {
    if (!isDefinedAt(node)) {
      return otherwise.apply(node);
    }
    @SuppressWarnings("unchecked") // Spark always asks for R or a supertype
    B done = (B) step.apply(node);
    return done;
  }
}
