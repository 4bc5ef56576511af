package io.sparkcrypt;

import java.util.LinkedHashSet;
import java.util.Set;

/**
 * The tags that a value has from the columns that it is made of, with those columns, and the tags that it lost or may have lost.
 */
final class Carried {
  private final Set<String> tags = new LinkedHashSet<>();
  private final Set<Origin> origins = new LinkedHashSet<>();
  private final Set<Origin> declassified = new LinkedHashSet<>();
  private final Set<Lost> lost = new LinkedHashSet<>();

  /** The tags that a value from no table may have lost: those of a column of the same name that was seen in a table. */
  record Lost(Origin of, Set<String> tags) {}

  /** A tagged column of a table, or of the folder that is read if no table is known. */
  record Origin(String table, String column) {}

  Set<String> tags() {
    return tags;
  }

  Set<Origin> origins() {
    return origins;
  }

  /** Returns the tagged columns whose tags the value does not have because it was declassified. */
  Set<Origin> declassifiedOrigins() {
    return declassified;
  }

  /** Returns the tags that the value may have lost before the plan, kept apart from its tags. */
  Set<Lost> losses() {
    return lost;
  }

  boolean isEmpty() {
    return tags.isEmpty() && origins.isEmpty() && declassified.isEmpty() && lost.isEmpty();
  }

  /** Returns the number of all these entries, which only grows. */
  int size() {
    return tags.size() + origins.size() + declassified.size() + lost.size();
  }

  void addAll(Set<String> more) {
    tags.addAll(more);
  }

  void addAll(Carried other) {
    tags.addAll(other.tags);
    origins.addAll(other.origins);
    declassified.addAll(other.declassified);
    lost.addAll(other.lost);
  }

  /** Adds the columns of another value, but none of its tags. */
  void addDeclassified(Carried other) {
    declassified.addAll(other.origins);
    declassified.addAll(other.declassified);
  }

  void add(Lost loss) {
    lost.add(loss);
  }

  void add(Origin origin) {
    origins.add(origin);
  }
}
