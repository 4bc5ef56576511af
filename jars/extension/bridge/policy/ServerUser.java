package io.sparkcrypt;

import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.CurrentUserContext;

/** The user that a Thrift or Connect server of this application serves in a session, as the server's client named it. */
final class ServerUser {
  private static final String CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService$";
  private static final String THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2$";

  private ServerUser() {}

  /** Returns the user; null for a session of no server, or if the server has named none. */
  static String of(SparkSession session) {
    String user = CurrentUserContext.CURRENT_USER().get(); // Thrift sets it around each statement
    if (user == null) {
      user = ofConnect(session);
    }
    return user != null ? user : Reader.connectUser(session.sparkContext().getLocalProperty(Reader.JOB_TAGS));
  }

  /** Returns whether a Thrift server runs here; each of its sessions belongs to a user. */
  static boolean isThriftServer() {
    Object server = module(THRIFT);
    return server != null && Calls.call(server, "eventManager") != null;
  }

  private static String ofConnect(SparkSession session) {
    Object service = module(CONNECT);
    Object manager = service == null ? null : Calls.callIfPresent(service, "sessionManager"); // Spark 3.5 has none
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

  /** Returns a Scala object whose class may be missing, or null. */
  private static Object module(String name) {
    try {
      return Class.forName(name, true, SparkSession.class.getClassLoader()).getField("MODULE$").get(null);
    } catch (ReflectiveOperationException | LinkageError e) {
      return null;
    }
  }
}
