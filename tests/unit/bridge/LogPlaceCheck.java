import java.lang.reflect.Method;

/**
 * Whether the log of a policy is the same key of maps after the logs of many other policies were asked for: "true" or "false" for
 * equals and for hashCode, and "false" where another policy's is equal to it.
 *
 * <p>Run from its source: {@code java -cp <the jar>:<Spark's jars> LogPlaceCheck.java}.
 */
public final class LogPlaceCheck {
  public static void main(String[] arguments) throws Exception {
    Method of = Class.forName("io.sparkcrypt.AccessLogPlace").getDeclaredMethod("of", String.class);
    of.setAccessible(true);
    Object first = of.invoke(null, policy(0));
    Object other = null;
    for (int i = 1; i <= 1_000; i++) {
      other = of.invoke(null, policy(i));
    }
    Object again = of.invoke(null, policy(0));
    System.out.println(first.equals(again) + " " + (first.hashCode() == again.hashCode()) + " " + first.equals(other));
  }

  private static String policy(int number) {
    return "{\"version\":1,\"access_log\":{\"location\":\"/log\",\"required\":false},\"owner\":\"" + number + "\"}";
  }
}
