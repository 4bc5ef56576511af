package io.sparkcrypt;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.slf4j.Logger;

/**
 * A rule that puts an index in front of the file index of each Parquet table in a query; it asks the table's store for data
 * skipping.
 *
 * <p>It runs after partition pruning and column pruning. It applies only if the session or the read asks for it and the policy
 * names the location of stores; it never applies to reads under a policy of their own, like those of runs.
 */
final class SkipRule extends Rule<LogicalPlan> {
  private static final Logger LOG = CleanLog.of(SkipRule.class);
  private static final AtomicBoolean TOLD = new AtomicBoolean();
  private static final Set<String> INDEXES = Set.of("InMemoryFileIndex", "CatalogFileIndex");
  private static final String CASE_SENSITIVE = "spark.sql.caseSensitive";
  private static final String FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled";

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan.find(Trees.test(node -> ReadTable.parquetOf(node) != null)).isEmpty()) {
      return plan;
    }
    SparkSession session = SparkSession.active();
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy == null || !policy.hasStores()) {
      return plan;
    }
    boolean isAsked = isTrue(session.sessionState().conf().getConfString(Names.SKIPPING, ""));
    Map<LogicalPlan, Set<String>> read = new IdentityHashMap<>();
    addRead(plan, read);
    KnownTables tables = new KnownTables(session, policy);
    return plan.transformUp(
        new Trees.Steps<LogicalPlan, LogicalPlan>(
            node -> read.containsKey(node) && isServed(node, isAsked),
            node -> skipping(new ReadTable(node, tables), policy, session, read.get(node))));
  }

  /** Returns the node with skipping, or the node itself if that fails. */
  private static LogicalPlan skipping(ReadTable table, SessionPolicy policy, SparkSession session, Set<String> read) {
    try {
      return table.hasOwnPolicy() || !isSupported() ? table.node : addSkipper(table, policy, session, read);
    } catch (RuntimeException | LinkageError e) {
      LOG.warn("{}: no file is skipped, since its plan cannot be changed: {}", table.name(), e.getMessage());
      return table.node;
    }
  }

  private static LogicalPlan addSkipper(ReadTable table, SessionPolicy policy, SparkSession session, Set<String> read) {
    FileIndex location = table.relation.location();
    Set<String> inFiles = Trees.lowerCase(List.of(table.schema().fieldNames()));
    inFiles.removeAll(Trees.lowerCase(List.of(location.partitionSchema().fieldNames())));
    List<Attribute> columns = Trees.output(table.node);
    columns.removeIf(column -> !inFiles.contains(column.name().toLowerCase(Locale.ROOT)));
    FileSkipper skipper = new FileSkipper(policy, table, new FilterForms(columns), read, obstacle(session));
    Object wrapped = Calls.copy(table.relation, location, new SkippingFileIndex(location, skipper));
    return table.node.makeCopy(Calls.values(table.node, table.relation, wrapped));
  }

  /** Returns whether a read uses skipping: its own option takes precedence over the session's setting. */
  private static boolean isServed(LogicalPlan node, boolean isAsked) {
    HadoopFsRelation relation = ReadTable.parquetOf(node);
    String said = Calls.orNull(relation.options().get(Names.SKIPPING));
    String index = relation.location().getClass().getSimpleName();
    return (said == null ? isAsked : isTrue(said)) && INDEXES.contains(index) && !node.isStreaming();
  }

  private static boolean isTrue(String said) {
    String word = said.trim().toLowerCase(Locale.ROOT);
    if (!word.isEmpty() && !word.equals("true") && !word.equals("false")) {
      throw Refusal.of("ConfigError", Names.SKIPPING + " is '" + said + "'; allowed: true, false");
    }
    return word.equals("true");
  }

  /** Returns why no index may be used in this session: columns of files are found in other ways than by their names alone. */
  private static String obstacle(SparkSession session) {
    for (String name : List.of(CASE_SENSITIVE, FIELD_IDS)) {
      if ("true".equalsIgnoreCase(session.sessionState().conf().getConfString(name, "false"))) {
        return name + " is true, and indexes know columns by their names, whatever their case";
      }
    }
    return null;
  }

  /** Returns whether this Spark lists files by the interface that is compiled here; Spark 3.5 uses another Scala's collections. */
  private static boolean isSupported() {
    try {
      if (FileIndex.class.getMethod("rootPaths").getReturnType().getName().equals("scala.collection.immutable.Seq")) {
        return true;
      }
    } catch (NoSuchMethodException e) {
      LOG.debug("files are listed by another interface", e);
    }
    if (TOLD.compareAndSet(false, true)) {
      LOG.warn("{} is true, and has no effect on this version of Spark: skipping needs Spark 4.0 or later", Names.SKIPPING);
    }
    return false;
  }

  /**
   * Notes the columns that are read of each table: those that the projection over it, and filters between them, refer to; else
   * all.
   */
  private static void addRead(LogicalPlan node, Map<LogicalPlan, Set<String>> read) {
    LogicalPlan below = node;
    List<LogicalPlan> above = new ArrayList<>();
    if (node instanceof Project project) {
      above.add(project);
      below = project.child();
      while (below instanceof Filter filter) {
        above.add(filter);
        below = filter.child();
      }
    }
    if (ReadTable.parquetOf(below) != null) {
      Set<String> names = read.computeIfAbsent(below, unused -> new LinkedHashSet<>());
      if (above.isEmpty()) {
        Trees.output(below).forEach(column -> names.add(column.name()));
      }
      for (LogicalPlan user : above) {
        Trees.attributes(user, "references").forEach(column -> names.add(column.name()));
      }
      return;
    }
    for (QueryPlan<?> child : Trees.children(below)) {
      addRead((LogicalPlan) child, read);
    }
  }

  /**
   * A rule that adds the metrics of its FileSkipper to each scan that uses a store, beside Spark's number of files read.
   *
   * <p>A scan has no interface for further metrics, so they are added to those that it sends from the driver. This is the last rule
   * before a scan runs, so no scan is copied after it. If the rule fails, the query runs without these metrics.
   */
  static final class Metrics extends ColumnarRule {
    private static final Logger LOG = CleanLog.of(Metrics.class);
    private static final AtomicBoolean IS_TOLD = new AtomicBoolean();
    private static final String SCAN = "org.apache.spark.sql.execution.FileSourceScanExec";
    private static final String SENT = "driverMetrics";
    /** The metrics that Spark's UI shows: made from those that are sent, and already made if the plan is adaptive. */
    private static final String SHOWN = "org$apache$spark$sql$execution$FileSourceScanLike$$scanMetrics";

    @Override
    public Rule<SparkPlan> preColumnarTransitions() {
      return new Rule<>() {
        @Override
        public SparkPlan apply(SparkPlan plan) {
          try {
            addTo(plan);
          } catch (RuntimeException | LinkageError e) {
            if (!IS_TOLD.getAndSet(true)) {
              LOG.warn("scans get no metrics of skipped files: {}", e.getMessage());
            }
          }
          return plan;
        }
      };
    }

    private static void addTo(QueryPlan<?> plan) {
      if (plan.getClass().getName().equals(SCAN) && Calls.call(Calls.call(plan, "relation"), "location") instanceof SkippingFileIndex index) {
        List<Expression> filters = Trees.elements(Expression.class, Calls.call(plan, "dataFilters"));
        Map<String, SQLMetric> metrics = index.skipper.metrics((SparkContext) Calls.call(plan, "sparkContext"), filters);
        for (String part : List.of(SENT, SHOWN)) {
          Calls.setField(plan.getClass(), plan, part, Calls.with(Calls.call(plan, part), metrics));
        }
      }
      Trees.children(plan).forEach(Metrics::addTo);
    }
  }
}
