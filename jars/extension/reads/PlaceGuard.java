package io.sparkcrypt;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.command.DropDatabaseCommand;

/**
 * A guard that refuses plans that read, write, name or delete the places of keys, credentials, state and stores
 * (ProtectedPlaces), and what users of a server may not do (ServerGuard).
 *
 * <p>A relation is judged by its folders, and by its files where these are above such a place or may be links. Of commands every
 * path is judged that is among their values, so that also unknown ones are.
 */
final class PlaceGuard {
  private static final TreeNodeTag<String> JUDGED = new TreeNodeTag<>("sparkcrypt.places");
  private static final Pattern NAMES_PLACE = Pattern.compile(".*(path|paths|location|locs|uri)", Pattern.CASE_INSENSITIVE);
  private static final Pattern PLACE = Pattern.compile("/.*|[A-Za-z][A-Za-z0-9+.-]*:/.*", Pattern.DOTALL);
  private static final Set<String> OVERWRITES =
      Set.of("InsertIntoDataSourceDirCommand", "InsertIntoHiveDirCommand", "AddFilesCommand", "AddArchivesCommand");
  private static final Set<String> DELETES = Set.of("DropTableCommand", "TruncateTableCommand", "DropDatabaseCommand");
  /** Commands whose paths without a scheme are local, whatever the default file system is. */
  private static final Set<String> LOCAL = Set.of("AddFilesCommand", "AddJarsCommand", "AddArchivesCommand");
  private static final int DEEPEST = 8;

  private final SparkSession session;
  private final RealPlaces real;
  private final ProtectedPlaces places;
  private final ServerGuard server;
  private final Set<Object> seen = Collections.newSetFromMap(new IdentityHashMap<>());
  private PlaceIndex<String> index;

  private PlaceGuard(SparkSession session, SessionPolicy policy) {
    this.session = session;
    real = new RealPlaces(policy);
    places = ProtectedPlaces.of(session, policy);
    server = ServerGuard.of(session);
  }

  /** Refuses a plan that reaches a protected place, or that a user of a server may not run. */
  static void check(SparkSession session, SessionPolicy policy, LogicalPlan plan) {
    new PlaceGuard(session, policy).visit(plan);
  }

  private void visit(QueryPlan<?> plan) {
    if (!seen.add(plan)) {
      return;
    }
    if (plan instanceof LogicalPlan node) {
      judge(node);
    }
    Trees.expressions(plan).forEach(this::visit);
    Trees.children(plan).forEach(this::visit);
    Trees.innerChildren(plan).forEach(this::visit);
  }

  private void visit(Expression expression) {
    server.check(expression);
    if (expression instanceof PlanExpression<?> subquery) {
      visit((QueryPlan<?>) subquery.plan());
    }
    Trees.children(expression).forEach(this::visit);
  }

  private void judge(LogicalPlan node) {
    server.check(node);
    Object options = Calls.callIfPresent(node, "options");
    Object token = options instanceof java.util.Map<?, ?> map ? map.get(Names.SESSION_TOKEN) : null;
    token = options instanceof scala.collection.Map<?, ?> ? Calls.orNull(Calls.call(options, "get", Names.SESSION_TOKEN)) : token;
    if (token != null) {
      PrincipalBinding.refuseOther(session, (String) token);
    }
    String name = node.getClass().getSimpleName();
    switch (name) {
      case "LogicalRelation" -> readFiles(node, Calls.call(node, "relation"));
      case "DataSourceV2Relation", "DataSourceV2ScanRelation" -> {
        Object relation = name.endsWith("ScanRelation") ? Calls.call(node, "relation") : node;
        readFiles(node, Calls.call(relation, "table"));
      }
      case "HiveTableRelation" -> paths(Calls.call(node, "tableMeta"), "", 0).forEach(path -> refuse(path, false));
      case "StreamingRelation" -> {
        Object source = Calls.call(node, "dataSource");
        List<String> found = paths(Calls.call(source, "paths"), "paths", 0);
        found.addAll(paths(Calls.call(source, "options"), "options", 0));
        found.forEach(path -> refuse(path, false));
        found.forEach(path -> server.checkPath(real.of(path), path));
      }
      default -> {
        if (Trees.children(node).isEmpty() || name.endsWith("Command") || name.matches("(Create|Replace|WriteTo|Set|Alter).*")) {
          command(node, name);
        }
      }
    }
  }

  private void readFiles(LogicalPlan node, Object relation) {
    Object files = Calls.callIfPresent(relation, "location");
    files = files == null ? Calls.callIfPresent(relation, "fileIndex") : files;
    if (files == null || Calls.callIfPresent(files, "rootPaths") == null) {
      Object options = Calls.callIfPresent(relation, "options");
      paths(options, "options", 0).forEach(path -> refuse(path, false));
      return;
    }
    String known = places.text() + server.text();
    if (known.equals(Calls.orNull(node.getTagValue(JUDGED)))) {
      return;
    }
    Object catalogTable = Calls.callIfPresent(node, "catalogTable");
    boolean isByPath = catalogTable == null || !(Boolean) Calls.call(catalogTable, "isDefined");
    boolean isAbove = false;
    boolean isLocal = false;
    for (Object root : Calls.list(Calls.call(files, "rootPaths"))) {
      Place place = real.of(root.toString());
      refuse(place, root.toString(), false);
      if (isByPath) {
        server.checkPath(place, root.toString());
      }
      isAbove |= !index().below(place).isEmpty();
      isLocal |= "file".equals(place.scheme());
    }
    paths(Calls.callIfPresent(relation, "options"), "options", 0).forEach(path -> refuse(path, false));
    if (isAbove || isLocal && isByPath && ReadTable.relationOf(node) == null) {
      for (String file : (String[]) Calls.call(files, "inputFiles")) {
        refuse(new Path(URI.create(file)).toString(), false);
      }
    }
    node.setTagValue(JUDGED, known);
  }

  private void command(LogicalPlan node, String name) {
    boolean isLocal = LOCAL.contains(name) || Boolean.TRUE.equals(Calls.callIfPresent(node, "isLocal"));
    boolean overwrites = OVERWRITES.contains(name) || "Overwrite".equals(String.valueOf(Calls.callIfPresent(node, "mode")))
        || name.equals("InsertIntoHiveTable") && (Boolean) Calls.call(node, "overwrite");
    Object table = Calls.callIfPresent(node, "catalogTable");
    boolean isOfTable = name.equals("InsertIntoHiveTable") || table instanceof scala.Option<?> option && option.isDefined();
    List<String> found = new ArrayList<>();
    for (Field field : node.getClass().getDeclaredFields()) {
      if (!Modifier.isStatic(field.getModifiers()) && Calls.callIfPresent(node, field.getName()) != null) {
        found.addAll(paths(Calls.callIfPresent(node, field.getName()), field.getName(), 0));
      }
    }
    for (String path : found) {
      String text = isLocal && Place.of(path).scheme() == null ? "file:" + new java.io.File(path.split("#")[0]).getAbsolutePath() : path;
      Place place = real.of(text);
      refuse(place, path, overwrites);
      if (!isOfTable && !isManaged(node)) {
        server.checkPath(place, path);
      }
    }
    if (isManaged(node)) {
      refuse(Place.textOf(catalog().defaultTablePath(((CatalogTable) Calls.call(node, "table")).identifier())), true);
    } else if (DELETES.contains(name)) {
      URI deleted = deletedFolder(node);
      if (deleted != null) {
        refuse(Place.textOf(deleted), true);
      }
    }
  }

  /** Returns whether a command creates a table in the folder that follows from its database. */
  private static boolean isManaged(LogicalPlan node) {
    Object table = node.getClass().getSimpleName().startsWith("Create") ? Calls.callIfPresent(node, "table") : null;
    return table instanceof CatalogTable made && made.tableType().name().equals("MANAGED");
  }

  /** Returns where a command deletes what Spark manages; null if that is nothing. */
  private URI deletedFolder(LogicalPlan node) {
    if (node instanceof DropDatabaseCommand drop) {
      return catalog().databaseExists(drop.databaseName()) ? catalog().getDatabaseMetadata(drop.databaseName()).locationUri() : null;
    }
    TableIdentifier identifier = (TableIdentifier) Calls.call(node, "tableName");
    if (!catalog().tableExists(identifier)) {
      return null;
    }
    CatalogTable table = (CatalogTable) Calls.call(catalog(), "getTableMetadata", identifier);
    return table.tableType().name().equals("MANAGED") ? Calls.orNull(table.storage().locationUri()) : null;
  }

  private SessionCatalog catalog() {
    return session.sessionState().catalog();
  }

  /** Returns the texts of places in a value of a node, whatever collections and descriptions it is in. */
  private static List<String> paths(Object value, String name, int depth) {
    List<String> found = new ArrayList<>();
    if (value == null || depth > DEEPEST || value instanceof QueryPlan || value instanceof Expression) {
      return found;
    }
    if (value instanceof URI) {
      found.add(Place.textOf(value));
    } else if (value instanceof Path) {
      found.add(value.toString());
    } else if (value instanceof String text) {
      boolean isPlace = NAMES_PLACE.matcher(name).matches() ? !text.isBlank() : PLACE.matcher(text).matches();
      if (isPlace && (name.equals("options") || NAMES_PLACE.matcher(name).matches())) {
        found.add(text);
      }
    } else if (value instanceof scala.collection.Map<?, ?> || value instanceof java.util.Map<?, ?>) {
      java.util.Map<?, ?> options = value instanceof java.util.Map<?, ?> own ? own : Calls.map(value);
      options.values().forEach(entry -> found.addAll(paths(entry, "options", depth + 1)));
    } else if (value instanceof scala.Option<?> option) {
      found.addAll(paths(Calls.orNull(option), name, depth + 1));
    } else if (value instanceof scala.collection.Iterable<?>) {
      Calls.list(value).forEach(entry -> found.addAll(paths(entry, name, depth + 1)));
    } else if (value.getClass().getSimpleName().matches("CatalogTable|CatalogStorageFormat|.*TableSpec.*|FunctionResource|Tuple2")) {
      for (Field field : value.getClass().getDeclaredFields()) {
        boolean isPart = !Modifier.isStatic(field.getModifiers()) && Calls.callIfPresent(value, field.getName()) != null;
        if (isPart && !field.getName().matches("properties") || isPart && value.getClass().getSimpleName().equals("CatalogStorageFormat")) {
          String part = value.getClass().getSimpleName().equals("Tuple2") ? name : field.getName();
          found.addAll(paths(Calls.callIfPresent(value, field.getName()), part, depth + 1));
        }
      }
    }
    return found;
  }

  private PlaceIndex<String> index() {
    if (index == null) {
      index = places.index(real);
    }
    return index;
  }

  private void refuse(String path, boolean isWhole) {
    refuse(real.of(path), path, isWhole);
  }

  /**
   * Refuses a path at or in a protected place.
   *
   * @param isWhole whether all that is below the path is concerned too
   */
  private void refuse(Place place, String path, boolean isWhole) {
    List<PlaceIndex.Entry<String>> found = new ArrayList<>(index().above(place));
    if (isWhole) {
      found.addAll(index().below(place));
    }
    if (!found.isEmpty()) {
      throw Refusal.of(
          "ConfigError",
          path + " is, or has in it, " + found.get(0).value() + "; sessions under the policy neither read nor write there, nor "
              + "name it; allowed: any other place");
    }
  }
}
