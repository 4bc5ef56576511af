package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import scala.Function0;
import scala.Option;

/** Partitions that a metastore returns by their names, in one query, and their copies with other folders; runs call it. */
public final class PartitionsByName {
  private static final String HIVE = "org.apache.spark.sql.hive.HiveExternalCatalog";
  private static final ObjectMapper JSON = new ObjectMapper();

  private PartitionsByName() {}

  /**
   * Returns those of some partitions that the metastore has under these names, in any order; null if the catalog is not Hive's,
   * which alone can be asked for several by name.
   *
   * @param catalog the ExternalCatalog.
   * @param question {@code database}, {@code table} and {@code names} ({@code p=0/q=a}), as JSON.
   */
  public static Object find(Object catalog, Object question) throws IOException {
    Object unwrapped = Calls.call(catalog, "unwrapped");
    if (!unwrapped.getClass().getName().equals(HIVE)) {
      return null;
    }
    Object client = Calls.call(unwrapped, "client");
    JsonNode asked = JSON.readTree((String) question);
    return Calls.call(client, "withHiveState", (Function0<Object>) () -> ask(client, asked));
  }

  private static List<Object> ask(Object client, JsonNode asked) {
    List<String> names = new ArrayList<>();
    asked.get("names").forEach(name -> names.add(name.asText()));
    try {
      Method hive = client.getClass().getDeclaredMethod("client");
      hive.setAccessible(true);
      Object session = hive.invoke(client);
      Object table = Calls.call(session, "getTable", asked.get("database").asText(), asked.get("table").asText());
      List<Object> found = new ArrayList<>();
      for (Object partition : (List<?>) Calls.call(session, "getPartitionsByNames", table, names)) {
        found.add(Calls.call(client, "fromHivePartition", partition)); // static, which the name finds too
      }
      return found;
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("Spark's client of Hive cannot be asked for partitions by name", e);
    }
  }

  /**
   * Returns copies of partitions with other folders, and with further parameters, as a Scala sequence.
   *
   * @param partitions a list of CatalogTablePartition.
   * @param changes for each null to leave it out, or its {@code values} by the table's names of its columns, which the metastore
   *     does not keep as they are written, its {@code location}, and the {@code parameters} to add, as a list in JSON.
   */
  public static Object move(Object partitions, Object changes) throws IOException {
    List<Object> moved = new ArrayList<>();
    Iterator<JsonNode> change = JSON.readTree((String) changes).iterator();
    for (Object partition : (List<?>) partitions) {
      JsonNode next = change.next();
      if (!next.isNull()) {
        moved.add(move((CatalogTablePartition) partition, next));
      }
    }
    return Calls.scalaList(moved);
  }

  private static CatalogTablePartition move(CatalogTablePartition partition, JsonNode change) {
    Object location = Option.apply(CatalogUtils.stringToURI(change.get("location").asText()));
    Object storage = Calls.copy(partition.storage(), partition.storage().locationUri(), location);
    Object parameters = Calls.with(partition.parameters(), texts(change.get("parameters")));
    CatalogTablePartition moved = Calls.copy(partition, partition.storage(), storage);
    moved = Calls.copy(moved, moved.parameters(), parameters);
    return Calls.copy(moved, moved.spec(), PythonUtils.toScalaMap(texts(change.get("values"))));
  }

  private static Map<String, String> texts(JsonNode members) {
    Map<String, String> found = new LinkedHashMap<>();
    members.fieldNames().forEachRemaining(name -> found.put(name, members.get(name).asText()));
    return found;
  }
}
