package io.sparkcrypt;

import java.util.LinkedHashSet;
import java.util.Set;

/** What a value has from the tagged columns that it is made of: their tags, which columns they are, and which of them it shed. */
final class Carried {
  private final Set<String> tags = new LinkedHashSet<>();
  private final Set<Origin> origins = new LinkedHashSet<>();
  private final Set<Origin> declassified = new LinkedHashSet<>();

  /** A tagged column of a table, or of the folder that is read where no table is known. */
  record Origin(String table, String column) {}

  Set<String> tags() {
    return tags;
  }

  Set<Origin> origins() {
    return origins;
  }

  /** Tagged columns whose tags it does not have, since somebody declassified it. */
  Set<Origin> declassified() {
    return declassified;
  }

  boolean isEmpty() {
    return tags.isEmpty() && origins.isEmpty() && declassified.isEmpty();
  }

  void addAll(Set<String> more) {
    tags.addAll(more);
  }

  void addAll(Carried other) {
    tags.addAll(other.tags);
    origins.addAll(other.origins);
    declassified.addAll(other.declassified);
  }

  /** Adds the columns of another value, and none of its tags. */
  void addDeclassified(Carried other) {
    declassified.addAll(other.origins);
    declassified.addAll(other.declassified);
  }

  void add(Origin origin) {
    origins.add(origin);
  }
}
