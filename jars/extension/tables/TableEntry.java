package io.sparkcrypt;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.types.StructType;

/** A table's entry in the catalog, as far as writers and readers of its files use it. */
final class TableEntry {
  static final String TAGS_KEY = "\"tags\"";
  /**
   * What a table's own properties may not say to its writers and readers, since they may only add protection. A policy, a key
   * service and a token in them are refused elsewhere (PinnedPolicy), and a history is for the helper to judge.
   */
  private static final Set<String> NEVER =
      Set.of(
          Names.CRYPTO_FACTORY, Names.KMS_CLIENT, Names.TABLE, Names.TABLE_NAME, Names.TABLE_SCHEMA, Names.QUERY_SCHEMA, Names.OWNER_SCHEMAS,
          Names.LOCATIONS, Names.PARTITION, Names.STREAM, Names.ALLOW_MASKED, Names.SKIPPING);

  private static final int MOST = 256;
  private static final Map<Less, Optional<String>> TAGGED = Newest.synchronizedMap(MOST);

  /** A schema, and the columns left out of it. */
  private record Less(StructType schema, Set<String> leftOut) {}

  private TableEntry() {}

  /** Returns {@code database.table}. */
  static String name(CatalogTable table) {
    return name(table, null);
  }

  /** Returns the same for a table that may name no database, and then is in the current one. */
  static String name(CatalogTable table, String current) {
    return database(table.identifier(), current) + "." + table.identifier().table();
  }

  /** Returns the database that an identifier names, or else the current one. */
  static String database(TableIdentifier identifier, String current) {
    return identifier.database().isDefined() ? identifier.database().get() : current;
  }

  /** Returns its name quoted for SQL. */
  static String quote(CatalogTable table) {
    return quote(table.identifier());
  }

  /** Returns the same for the identifier of a table, without its catalog. */
  static String quote(TableIdentifier identifier) {
    String database = database(identifier, null);
    return (database == null ? "" : quote(database) + ".") + quote(identifier.table());
  }

  private static String quote(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  /** Returns the folder of its files; null if it has none, like a view. */
  static String folder(CatalogTable table) {
    return folder(table.storage());
  }

  /** Returns the folder of the files of a table or partition. */
  static String folder(CatalogStorageFormat storage) {
    return storage.locationUri().isDefined() ? Place.textOf(storage.locationUri().get()) : null;
  }

  /** Returns the properties of sparkcrypt that reach a writer. */
  static Map<String, String> properties(CatalogTable table) {
    Map<String, String> found = new TreeMap<>();
    add(found, table.storage().properties());
    if (isHive(table)) {
      add(found, table.properties());
    }
    return found;
  }

  /** Returns the names of its partition columns. */
  static List<String> partitionColumns(CatalogTable table) {
    return Calls.list(Calls.call(table, "partitionColumnNames"));
  }

  /** Returns whether it is a Hive table. */
  static boolean isHive(CatalogTable table) {
    return "hive".equalsIgnoreCase(Calls.orNull(table.provider()));
  }

  /** Returns whether files in this form are read and written by Hive's SerDe of ORC. */
  static boolean isOrcSerde(CatalogStorageFormat storage) {
    String serde = Calls.orNull(storage.serde());
    return serde != null && serde.toLowerCase(Locale.ROOT).endsWith(".orcserde");
  }

  /**
   * Returns those options or properties that are sparkcrypt's and that may be of a table; none of what is no Scala map, such as
   * Java's options of sources of version 2, which encrypt nothing.
   */
  static Map<String, String> ofSparkcrypt(Object options) {
    Map<String, String> found = new TreeMap<>();
    if (options instanceof scala.collection.Map) {
      add(found, options);
    }
    return found;
  }

  private static void add(Map<String, String> found, Object scalaMap) {
    Calls.<String, String>map(scalaMap).forEach((name, value) -> {
      if (name.startsWith(Names.PREFIX) && !name.equals(Names.POLICY) && !name.equals(Names.KEY_SERVICE) && !isRefused(name)) {
        found.put(name, value);
      }
    });
  }

  private static boolean isRefused(Object name) {
    return NEVER.contains(((String) name).toLowerCase(Locale.ROOT));
  }

  /** Returns the options of a write or read of a table without those of its own properties that could weaken it. */
  static Object dropWeakening(Object options, CatalogTable table) {
    Set<String> own = new HashSet<>(Calls.<String, String>map(table.storage().properties()).keySet());
    own.addAll(Calls.<String, String>map(table.properties()).keySet());
    own.removeIf(name -> !isRefused(name));
    return Calls.without(options, own);
  }

  /** Removes the same from the properties of a table that Hive's SerDe writes. */
  static void removeWeakening(Properties own) {
    own.keySet().removeIf(TableEntry::isRefused);
  }

  /** Refuses a table that is being created with properties that reach neither writers nor readers. */
  static void refuseUnread(CatalogTable table) {
    for (String name : Calls.<String, String>map(table.properties()).keySet()) {
      if (!isHive(table) && name.toLowerCase(Locale.ROOT).startsWith(Names.PREFIX)) {
        throw Refusal.of(
            "PlanError",
            name(table) + ": TBLPROPERTIES of a data source table reach no writer, so " + name + " would have no effect; allowed: "
                + "OPTIONS, or `sparkcrypt tags set` once the table is there");
      }
    }
  }

  static boolean isTagged(CatalogTable table) {
    return properties(table).keySet().stream().anyMatch(name -> name.startsWith(Names.TAGS_PREFIX))
        || tagsIn(table.schema(), Set.of()) != null;
  }

  /** Returns the properties for a writer of this table's files: its name, its properties, and the tags in its schema. */
  static Map<String, String> writerProperties(CatalogTable table) {
    Map<String, String> told = properties(table);
    told.put(Names.TABLE_NAME, name(table));
    String schema = tagsIn(table.schema(), Trees.lowerCase(partitionColumns(table)));
    if (schema != null) {
      told.put(Names.TABLE_SCHEMA, schema);
    }
    return told;
  }

  /** Returns the entry of a table that is being created, with the tags of its columns in the properties that reach its writers. */
  static CatalogTable withTags(CatalogTable table, Map<String, Set<String>> tags) {
    Map<String, String> more = new TreeMap<>();
    tags.forEach((name, ofColumn) -> more.put(tagProperty(List.of(name)), String.join(",", ofColumn)));
    return with(table, more);
  }

  /** Returns an entry with more of the properties that reach writers. */
  static CatalogTable with(CatalogTable table, Map<String, String> more) {
    if (isHive(table)) {
      return withMarks(table, more);
    }
    CatalogStorageFormat storage = table.storage();
    Object properties = storage.properties();
    return Calls.copy(table, storage, Calls.copy(storage, properties, Calls.with(properties, more)));
  }

  /** Returns an entry with more properties that reach no writer. */
  static CatalogTable withMarks(CatalogTable table, Map<String, String> more) {
    Object properties = table.properties();
    return Calls.copy(table, properties, Calls.with(properties, more));
  }

  static CatalogTable withSchema(CatalogTable table, StructType schema) {
    return Calls.copy(table, table.schema(), schema);
  }

  /** Returns the UUID that the options of a write or read name; null if they name none. */
  static String uuidIn(Object options) {
    return (String) Calls.orNull(Calls.call(options, "get", Names.TABLE_UUID));
  }

  /** Returns the name of the property that has the tags of a column, or of a field inside it. */
  static String tagProperty(List<String> path) {
    return Names.TAGS_PREFIX + path.stream().map(TableEntry::encode).collect(Collectors.joining("."));
  }

  /** Returns a column's name encoded for a property's name (property_name in sparkcrypt/schema.py). */
  private static String encode(String name) {
    StringBuilder text = new StringBuilder();
    for (byte octet : name.getBytes(StandardCharsets.UTF_8)) {
      boolean plain = octet > 0 && (Character.isLetterOrDigit(octet) || "-_ ~".indexOf(octet) >= 0);
      text.append(plain ? String.valueOf((char) octet) : String.format("%%%02X", octet));
    }
    return text.toString();
  }

  /** Returns the names of a path that a property's name encodes. */
  static List<String> decode(String path) {
    return Arrays.stream(path.split("\\.")).map(name -> URLDecoder.decode(name.replace("+", "%2B"), StandardCharsets.UTF_8)).toList();
  }

  /** Returns a schema's JSON without some columns, named in lower case; null if no other column carries a tag. */
  static String tagsIn(StructType schema, Set<String> leftOut) {
    if (!FieldTags.hasMetadata(schema)) {
      return null;
    }
    return TAGGED.computeIfAbsent(new Less(schema, leftOut), TableEntry::tagsIn).orElse(null);
  }

  private static Optional<String> tagsIn(Less less) {
    return Optional.of(FieldTags.without(less.schema, less.leftOut).json()).filter(json -> json.contains(TAGS_KEY));
  }
}
