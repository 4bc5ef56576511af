package io.sparkcrypt;

import java.util.List;
import java.util.function.UnaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The principal that this thread reads for, with the execution and the route, as access events record them.
 *
 * <p>The principal and the application come from the launch. The rest are local properties of Spark's jobs, which the
 * application's program can set freely. Spark copies a session's settings into them, so those of these names are made static
 * settings, which neither SQL nor a client can set.
 *
 * @param execution the SQL execution; the stage if there is none; null on the driver outside queries
 * @param route stream, connect, sql, rdd, driver, or parquet without Spark
 * @param sessionUser the user that a server serves; null if none is known
 */
record Reader(String principal, String application, String execution, String route, String sessionUser) {
  static final String EXECUTION_ID = "spark.sql.execution.id";
  static final String JOB_TAGS = "spark.job.tags";
  static final String JOB_GROUP = "spark.jobGroup.id";
  static final String STREAM_QUERY_ID = "sql.streaming.queryId";
  private static final String USER = "user";
  private static final String ID = "[0-9a-fA-F-]{36}";
  private static final Pattern CONNECT = Pattern.compile("SparkConnect_OperationTag_User_(.*)_Session_" + ID + "_Operation_" + ID);

  /** Returns the reader of a thread that opens files, usually a task's. */
  static Reader current() {
    try {
      if (Launch.isSpark()) {
        return SparkSide.ofTask(TaskContext.get());
      }
    } catch (LinkageError e) {
      // parquet-mr without Spark
    }
    return new Reader(Launch.principal(), null, null, "parquet", null);
  }

  /** Returns the reader of a driver's thread, while its query is being resolved. */
  static Reader onDriver(SparkContext context) {
    return SparkSide.of(context::getLocalProperty, "driver");
  }

  /** Returns the same reader under another principal's name. */
  Reader withPrincipal(String name) {
    return new Reader(name, application, execution, route, sessionUser);
  }

  /** Returns the user in a Connect server's job tags; empty if the client named none, null without such a server. */
  static String connectUser(String tags) {
    for (String tag : tags == null ? new String[0] : tags.split(",")) {
      Matcher found = CONNECT.matcher(tag);
      if (found.matches()) { // a client's own tags begin otherwise
        return found.group(1);
      }
    }
    return null;
  }

  /** Returns whether this thread's task is of a streaming query. */
  static boolean isOfStream() {
    try {
      return Launch.isSpark() && SparkSide.isStream();
    } catch (LinkageError e) {
      return false; // parquet-mr without Spark
    }
  }

  /** Makes Spark refuse a SET of what says for whom a job is. */
  static void protectNames() {
    for (String name : List.of(EXECUTION_ID, JOB_TAGS, JOB_GROUP)) {
      if (!SQLConf.isStaticConfigKey(name)) {
        SQLConf.buildStaticConf(name).internal().stringConf().createOptional();
      }
    }
  }

  /** The part that needs Spark's classes, kept apart so that the outer class loads without them. */
  private static final class SparkSide {
    static Reader ofTask(TaskContext task) {
      if (task == null) {
        return of(name -> null, "driver");
      }
      Reader found = of(task::getLocalProperty, task.getLocalProperty(EXECUTION_ID) == null ? "rdd" : "sql");
      String execution = found.execution() == null ? "stage " + task.stageId() : found.execution();
      return new Reader(found.principal(), found.application(), execution, found.route(), found.sessionUser());
    }

    static boolean isStream() {
      TaskContext task = TaskContext.get();
      return task != null && task.getLocalProperty(STREAM_QUERY_ID) != null;
    }

    static Reader of(UnaryOperator<String> properties, String usual) {
      String connectUser = connectUser(properties.apply(JOB_TAGS));
      String route = connectUser == null ? usual : "connect";
      if (properties.apply(STREAM_QUERY_ID) != null) {
        route = "stream";
      }
      String user = connectUser == null || connectUser.isEmpty() ? properties.apply(USER) : connectUser;
      return new Reader(Launch.principal(), Launch.conf("spark.app.id"), properties.apply(EXECUTION_ID), route, user);
    }
  }
}
