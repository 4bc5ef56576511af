package io.sparkcrypt;

import java.util.function.UnaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;

/**
 * For whom this thread reads, in which execution and by which route, as access events name them.
 *
 * <p>The principal and the application are the launch's. The rest are local properties of Spark's jobs, which the program of the
 * application may set as it likes.
 *
 * @param execution of SQL; where there is none, the stage; null on the driver outside of queries
 * @param route stream, connect, sql, rdd, driver, or parquet where there is no Spark
 * @param sessionUser whom a server says that it serves; null where none does
 */
record Reader(String principal, String application, String execution, String route, String sessionUser) {
  static final String EXECUTION_ID = "spark.sql.execution.id";
  static final String JOB_TAGS = "spark.job.tags";
  static final String JOB_GROUP = "spark.jobGroup.id";
  static final String STREAM_QUERY_ID = "sql.streaming.queryId";
  private static final String USER = "user";
  private static final Pattern CONNECT = Pattern.compile("SparkConnect_OperationTag_User_(.*?)_Session_[^,]*_Operation_");

  /** Of a thread that opens files: a task's, as a rule. */
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

  /** Of a thread of the driver, whose queries are only being resolved. */
  static Reader onDriver(SparkContext context) {
    return SparkSide.of(context::getLocalProperty, "driver");
  }

  /** The same reader under another name. */
  Reader named(String name) {
    return new Reader(name, application, execution, route, sessionUser);
  }

  /** Whom a Connect server names in the tags of a job; empty where its client named nobody, null where there is no server. */
  static String connectUser(String tags) {
    Matcher found = tags == null ? null : CONNECT.matcher(tags);
    return found != null && found.find() ? found.group(1) : null;
  }

  /** Apart, so that this class loads where Spark's classes are not. */
  private static final class SparkSide {
    static Reader ofTask(TaskContext task) {
      if (task == null) {
        return of(name -> null, "driver");
      }
      Reader found = of(task::getLocalProperty, task.getLocalProperty(EXECUTION_ID) == null ? "rdd" : "sql");
      String execution = found.execution() == null ? "stage " + task.stageId() : found.execution();
      return new Reader(found.principal(), found.application(), execution, found.route(), found.sessionUser());
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
