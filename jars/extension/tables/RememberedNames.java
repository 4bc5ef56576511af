package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** What people's tags require of tables by their names, in properties of the database (spark/tables/remembered_names.py). */
final class RememberedNames {
  private RememberedNames() {}

  /** Returns what is remembered of a name; null if it is nothing, or there is no such database. */
  static TableRequirements find(Object catalog, String database, String table) {
    if (!(Boolean) Calls.call(catalog, "databaseExists", database)) {
      return null;
    }
    Object properties = Calls.call(Calls.call(catalog, "getDatabaseMetadata", database), "properties");
    String name = Names.NAME_PREFIX + table.toLowerCase(Locale.ROOT);
    StringBuilder text = new StringBuilder();
    String part = (String) Calls.orNull(Calls.call(properties, "get", name));
    for (int number = 1; part != null && !part.isEmpty(); number++) {
      text.append(part);
      part = (String) Calls.orNull(Calls.call(properties, "get", name + "#" + number));
    }
    return text.isEmpty() ? null : parse(text.toString(), database + "." + table, name);
  }

  private static TableRequirements parse(String text, String table, String property) {
    try {
      JsonNode record = Wire.parse(text.getBytes(StandardCharsets.UTF_8));
      Map<List<String>, Set<String>> tags = new LinkedHashMap<>();
      record
          .required("tags")
          .fieldNames()
          .forEachRemaining(
              path -> {
                Set<String> ofColumn = tags.computeIfAbsent(TableEntry.decode(path), unused -> new LinkedHashSet<>());
                record.get("tags").get(path).forEach(tag -> ofColumn.add(tag.asText()));
              });
      return new TableRequirements(record.path("uuid").textValue(), tags, record.required("require_encryption").asBoolean(), null);
    } catch (IOException | IllegalArgumentException e) {
      throw Refusal.of(
          "PlanError",
          table + ": database property " + property + " is not what sparkcrypt wrote there, so what a table of this name requires is "
              + "not known; set the tags of the table again, or remove it: `sparkcrypt tags forget " + table + "`",
          e);
    }
  }
}
