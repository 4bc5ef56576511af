package io.sparkcrypt;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/**
 * A guard of servers whose users have keys of their own: it refuses SQL that runs programs or reads local files with the server's
 * rights, unless the launch allows it.
 *
 * @param allowances what the launch allows; null if this session is none of a server's user
 * @param warehouse the folder of Spark's own tables
 */
record ServerGuard(Set<String> allowances, Place warehouse) {
  private static final String ALLOW = "spark.sparkcrypt.allow_on_server";
  private static final String TRANSFORM = "transform";
  private static final String REFLECT = "reflect";
  private static final String RESOURCES = "resources";
  private static final String LOCAL_FILES = "local_files";
  private static final Set<String> REFLECTING = Set.of("CallMethodViaReflection", "TryReflect");

  static ServerGuard of(SparkSession session) {
    if (!PrincipalBinding.isOfUser(session)) {
      return new ServerGuard(null, null);
    }
    String said = Launch.conf(ALLOW);
    Set<String> allowed = new HashSet<>();
    Arrays.stream((said == null ? "" : said).split(",")).map(String::trim).forEach(allowed::add);
    return new ServerGuard(allowed, Place.of(session.sessionState().conf().warehousePath())); // a static setting
  }

  String text() {
    return String.valueOf(allowances);
  }

  void check(Expression expression) {
    if (REFLECTING.contains(expression.getClass().getSimpleName())) {
      refuse(REFLECT, "reflect, java_method and try_reflect");
    }
  }

  void check(LogicalPlan node) {
    switch (node.getClass().getSimpleName()) {
      case "ScriptTransformation" -> refuse(TRANSFORM, "TRANSFORM by a program");
      case "AddFilesCommand", "AddJarsCommand", "AddArchivesCommand" -> refuse(RESOURCES, "ADD FILE, ADD JAR and ADD ARCHIVE");
      case "CreateFunctionCommand" -> {
        if (!Calls.list(Calls.call(node, "resources")).isEmpty()) {
          refuse(RESOURCES, "CREATE FUNCTION … USING");
        }
        String name = (String) Calls.call(node, "className");
        refuse(name, "CREATE FUNCTION of the class " + name);
      }
      default -> {} // nothing else runs a program
    }
  }

  /** Refuses a path that a query names itself and that is a local file; the warehouse is known by its tables anyhow. */
  void checkPath(Place place, String path) {
    if (allowances != null && "file".equals(place.scheme()) && !place.isWithin(warehouse)) {
      refuse(LOCAL_FILES, "the local path " + path);
    }
  }

  private void refuse(String name, String what) {
    if (allowances != null && !allowances.contains(name)) {
      throw Refusal.of(
          "ConfigError",
          what + " is refused: users of this server have keys of their own, and it would run or read with the server's rights; "
              + "allowed: what the launch names in " + ALLOW + " (" + String.join(", ", TRANSFORM, REFLECT, RESOURCES, LOCAL_FILES)
              + ", and classes of functions)");
    }
  }
}
