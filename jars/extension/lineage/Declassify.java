package io.sparkcrypt;

import java.util.List;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.types.DataTypes;
import scala.Enumeration;
import scala.Function1;
import scala.Tuple3;

/**
 * The SQL function {@code declassify(value, reason)}: the value without its tags, if the policy allows it.
 *
 * <p>It is built as {@code IF(mark <=> mark, value, NULL)} from Spark's own functions, so that no executor needs a class of this
 * jar. The mark contains the reason. The same expression in a user's query is judged in the same way.
 */
final class Declassify {
  private static final String NAME = "declassify";
  private static final String MARK = "sparkcrypt.declassify:";

  private Declassify() {}

  /** Registers the function in sessions that are created later. */
  @SuppressWarnings({"unchecked", "rawtypes"}) // the builder's own type names a Scala collection
  static void inject(SparkSessionExtensions extensions) {
    Function1<Object, Expression> builder = arguments -> make(Trees.elements(Expression.class, arguments));
    extensions.injectFunction((Tuple3) new Tuple3<>(new FunctionIdentifier(NAME), new ExpressionInfo(Declassify.class.getName(), NAME), builder));
  }

  /** Registers the function in an existing session. */
  static void register(Object session) {
    SparkSessionExtensions own = new SparkSessionExtensions();
    inject(own);
    Calls.call(own, "registerFunctions", Calls.call(Calls.call(session, "sessionState"), "functionRegistry"));
  }

  private static Expression make(List<Expression> arguments) {
    Object reason = arguments.size() == 2 && arguments.get(1) instanceof Literal ? ((Literal) arguments.get(1)).value() : null;
    if (reason == null || reason.toString().isBlank()) {
      throw Refusal.of(
          "PlanError",
          "declassify takes a value and the reason, a text of its own that is not empty: declassify(email, 'ticket 17')");
    }
    Literal mark = Trees.text(MARK + reason);
    return new If(new EqualNullSafe(mark, mark), arguments.get(0), new Literal(null, DataTypes.NullType));
  }

  /** Returns the tree pattern of every expression in which something is declassified, also in the plan of a subquery. */
  static Enumeration.Value pattern() {
    return TreePattern.IF();
  }

  /** Returns the reason of an expression that this function made; null for any other. */
  static String reason(Expression expression) {
    if (!(expression instanceof If made && made.predicate() instanceof EqualNullSafe mark && mark.left() instanceof Literal left)) {
      return null;
    }
    String text = left.equals(mark.right()) ? String.valueOf(left.value()) : "";
    return text.startsWith(MARK) ? text.substring(MARK.length()) : null;
  }
}
