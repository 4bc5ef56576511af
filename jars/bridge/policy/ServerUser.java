package io.sparkcrypt;

import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.CurrentUserContext;

/** Whom a Thrift or Connect server of this application serves with a session, as the server has it from its client. */
final class ServerUser {
  private static final String CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService$";
  private static final String THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2$";

  private ServerUser() {}

  /** Returns null for a session that no server has, and where the server has not said. */
  static String of(SparkSession session) {
    String user = CurrentUserContext.CURRENT_USER().get(); // Thrift sets it around each statement
    if (user == null) {
      user = ofConnect(session);
    }
    return user != null ? user : Reader.connectUser(session.sparkContext().getLocalProperty(Reader.JOB_TAGS));
  }

  /** Whether a Thrift server runs here, all of whose sessions are some user's. */
  static boolean isThriftServer() {
    Object server = module(THRIFT);
    return server != null && Calls.call(server, "eventManager") != null;
  }

  private static String ofConnect(SparkSession session) {
    Object service = module(CONNECT);
    Object manager = service == null ? null : Calls.held(service, "sessionManager"); // Spark 3.5 has none
    if (manager == null) {
      return null;
    }
    for (Object holder : ((Map<?, ?>) Calls.field(manager, "sessionStore")).values()) {
      if (Calls.call(holder, "session") == session) {
        return (String) Calls.call(holder, "userId");
      }
    }
    return null;
  }

  /** A Scala object of a class that may not be there. */
  private static Object module(String name) {
    try {
      return Class.forName(name, true, SparkSession.class.getClassLoader()).getField("MODULE$").get(null);
    } catch (ReflectiveOperationException | LinkageError e) {
      return null;
    }
  }
}
