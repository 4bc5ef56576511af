package io.sparkcrypt;

import java.util.List;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;

/**
 * A folder of a table with tags or a rule.
 *
 * @param folder as the catalog names it
 * @param place where it really is
 * @param name the table's name
 * @param table its entry in the catalog; null for a table that does not exist yet
 * @param isRuled whether the policy has a rule for its name
 */
record TablePlace(String folder, Place place, String name, CatalogTable table, boolean isRuled) {
  TablePlace with(CatalogTable now) {
    return new TablePlace(folder, place, name, now, isRuled);
  }

  boolean isOf(String other) {
    return name.replace("`", "").equalsIgnoreCase(other.replace("`", ""));
  }

  String uuid() {
    return table == null ? null : TableEntry.properties(table).get(Names.TABLE_UUID);
  }

  /** Returns whether the table's readers list files of a folder: its own, or one of its partitions'. */
  boolean lists(Place other) {
    return namesBelow(other, place).stream().allMatch(name -> name.indexOf('=') > 0);
  }

  /**
   * Returns whether a write into a folder above can put files into this one.
   *
   * @param columns the names of the write's partition columns
   */
  boolean isReachedFrom(Place above, List<String> columns) {
    List<String> names = namesBelow(place, above);
    for (int i = 0; i < names.size(); i++) {
      int sign = names.get(i).indexOf('=');
      if (i >= columns.size() || sign < 0 || !unescape(names.get(i).substring(0, sign)).equalsIgnoreCase(columns.get(i))) {
        return false;
      }
    }
    return true;
  }

  private static List<String> namesBelow(Place place, Place root) {
    String rest = place.below(root);
    return rest.isEmpty() ? List.of() : List.of(rest.substring(1).split("/"));
  }

  /** Removes Hive's escapes of a folder's name: a percent sign and two digits for a character that a name may not contain. */
  static String unescape(String text) {
    StringBuilder plain = new StringBuilder();
    for (int i = 0; i < text.length(); i++) {
      boolean isEscape = text.charAt(i) == '%' && i + 2 < text.length() && isHex(text, i + 1) && isHex(text, i + 2);
      plain.append(isEscape ? (char) Integer.parseInt(text.substring(i + 1, i + 3), 16) : text.charAt(i));
      i += isEscape ? 2 : 0;
    }
    return plain.toString();
  }

  private static boolean isHex(String text, int place) {
    return Character.digit(text.charAt(place), 16) >= 0;
  }
}
