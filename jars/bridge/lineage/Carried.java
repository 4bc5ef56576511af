package io.sparkcrypt;

import java.util.LinkedHashSet;
import java.util.Set;

/** What a value has from the tagged columns that it is made of: their tags, which columns they are, and which of them it shed. */
final class Carried {
  private final Set<String> tags = new LinkedHashSet<>();
  private final Set<Origin> origins = new LinkedHashSet<>();
  private final Set<Origin> declassified = new LinkedHashSet<>();
  private final Set<Lost> lost = new LinkedHashSet<>();

  /** What a value has lost that comes from no table: a column of its name that was seen with tags, and these tags. */
  record Lost(Origin of, Set<String> tags) {}

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

  /** What it may have lost on the way, of which none is among its tags. */
  Set<Lost> lost() {
    return lost;
  }

  boolean isEmpty() {
    return tags.isEmpty() && origins.isEmpty() && declassified.isEmpty() && lost.isEmpty();
  }

  /** How much is known of it, which only grows. */
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

  /** Adds the columns of another value, and none of its tags. */
  void addDeclassified(Carried other) {
    declassified.addAll(other.origins);
    declassified.addAll(other.declassified);
  }

  void add(Lost one) {
    lost.add(one);
  }

  void add(Origin origin) {
    origins.add(origin);
  }
}
