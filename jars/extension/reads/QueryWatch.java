package io.sparkcrypt;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.slf4j.Logger;

/**
 * A listener that adds to access events what only the driver has of an execution: the digest of its SQL text, and a server's
 * user.
 *
 * <p>Texts of queries contain values, which could be guessed from a plain digest. The digest is therefore an HMAC under a key
 * that this driver generates and that never leaves it: equal digests of one application mean equal texts, and reveal nothing
 * else. The text itself can be found in Spark's own history by application and execution.
 */
final class QueryWatch extends SparkListener {
  private static final Logger LOG = CleanLog.of(QueryWatch.class);
  private static final String THRIFT = "org.apache.spark.sql.hive.thriftserver.ui.SparkListenerThriftServerOperationStart";
  private static final int MOST = 10_000;
  private static final byte[] KEY = newKey(); // for digests
  private static SparkContext watched; // guarded by the class

  /** The first job's properties of each of the latest executions; below, Thrift's latest statements by job group. */
  private final Map<String, Properties> jobs = new Newest<>(MOST);

  private final Map<String, Statement> statements = new Newest<>(MOST);

  private record Statement(String user, String text) {}

  private QueryWatch() {}

  /** Adds a listener to an application, once. */
  static synchronized void install(SparkContext context) {
    if (watched != context) {
      context.addSparkListener(new QueryWatch());
      watched = context;
    }
  }

  @Override
  public void onJobStart(SparkListenerJobStart start) {
    Properties properties = start.properties();
    String execution = properties == null ? null : properties.getProperty(Reader.EXECUTION_ID);
    if (execution != null) {
      jobs.putIfAbsent(execution, properties);
    }
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    try {
      if (event.getClass().getName().equals(THRIFT)) {
        statements.put(text(event, "groupId"), new Statement(text(event, "userName"), text(event, "statement")));
      } else if (event instanceof SparkListenerSQLExecutionEnd end && end.qe() != null) {
        note(end.qe(), String.valueOf(end.executionId()));
      }
    } catch (RuntimeException | LinkageError e) {
      LOG.debug("an access event lacks what the listener would have added", e);
    }
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd end) {
    AccessEvents.flushSoon();
  }

  private void note(QueryExecution query, String execution) {
    Properties job = jobs.remove(execution);
    if (job == null) {
      return; // it ran no task, so it opened no key
    }
    SparkSession session = (SparkSession) Calls.call(query, "sparkSession");
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy == null || AccessLogPlace.of(policy.text()) == null || !ReaderPlan.isConcerned(query.analyzed())) {
      return;
    }
    AccessLogPlace place = AccessLogPlace.of(PinnedPolicy.of(policy.hadoopConf()).policy());
    if (place != null) {
      Statement statement = statements.get(job.getProperty(Reader.JOB_GROUP, ""));
      String text = statement == null ? sqlText(query.logical()) : statement.text();
      AccessEvents.noteQuery(place, reader(execution, statement), text == null ? null : digest(text));
    }
  }

  /** Returns a reader with the user and route that only the listener has; null leaves a value to the tasks' events. */
  private static Reader reader(String execution, Statement statement) {
    String user = statement == null ? null : statement.user();
    String route = statement == null ? null : "thrift";
    return new Reader(Launch.principal(), Launch.conf("spark.app.id"), execution, route, user);
  }

  /** Returns the text that a plan was parsed from, or null; the text of a view is not the query's. */
  private static String sqlText(LogicalPlan plan) {
    Set<String> found = new LinkedHashSet<>();
    plan.find(Trees.test(node -> {
      boolean isOwn = node.origin().sqlText().isDefined() && node.origin().objectType().isEmpty();
      return isOwn && found.add(node.origin().sqlText().get());
    }));
    return found.stream().findFirst().orElse(null);
  }

  private static String digest(String text) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(KEY, "HmacSHA256"));
      return HexFormat.of().formatHex(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e); // every Java has it
    }
  }

  private static byte[] newKey() {
    byte[] key = new byte[32];
    new SecureRandom().nextBytes(key);
    return key;
  }

  private static String text(Object event, String name) {
    Object value = Calls.call(event, name);
    return value == null ? null : String.valueOf(value);
  }
}
