package io.sparkcrypt;

import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** A rule's step on the nodes that it applies to, as the partial function that Catalyst's transformations take. */
final class PlanSteps<R> extends AbstractPartialFunction<LogicalPlan, R> {
  private static final long serialVersionUID = 1L;
  private final transient Predicate<LogicalPlan> judged;
  private final transient Function<LogicalPlan, R> step;

  PlanSteps(Predicate<LogicalPlan> judged, Function<LogicalPlan, R> step) {
    this.judged = judged;
    this.step = step;
  }

  @Override
  public boolean isDefinedAt(LogicalPlan node) {
    return judged.test(node);
  }

  @Override
  public <A extends LogicalPlan, B> B applyOrElse(A node, Function1<A, B> otherwise) {
    if (!isDefinedAt(node)) {
      return otherwise.apply(node);
    }
    @SuppressWarnings("unchecked") // Catalyst always asks for R or a supertype
    B done = (B) step.apply(node);
    return done;
  }
}
