package io.sparkcrypt;

import java.util.LinkedHashSet;
import java.util.Set;

/** What a value has from the tagged columns that it is made of: their tags, and which columns they are. */
final class Carried {
  private final Set<String> tags = new LinkedHashSet<>();
  private final Set<Origin> origins = new LinkedHashSet<>();

  /** A tagged column of a table, or of the folder that is read where no table is known. */
  record Origin(String table, String column) {}

  Set<String> tags() {
    return tags;
  }

  Set<Origin> origins() {
    return origins;
  }

  boolean isEmpty() {
    return tags.isEmpty() && origins.isEmpty();
  }

  void addAll(Set<String> more) {
    tags.addAll(more);
  }

  void addAll(Carried other) {
    tags.addAll(other.tags);
    origins.addAll(other.origins);
  }

  void add(Origin origin) {
    origins.add(origin);
  }
}
