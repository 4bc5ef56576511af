package io.sparkcrypt;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;

/**
 * What a value has from the columns that it is made of.
 *
 * @param tags the tags that it has
 * @param placedOrigins the tagged columns, each with its place in the value
 * @param declassifiedOrigins the tagged columns whose tags the value does not have because it was declassified
 * @param losses the tags that the value may have lost before the plan, kept apart from its tags
 */
record Carried(Set<String> tags, Set<Placed> placedOrigins, Set<Origin> declassifiedOrigins, Set<Lost> losses) {
  Carried() {
    this(new LinkedHashSet<>(), new LinkedHashSet<>(), new LinkedHashSet<>(), new LinkedHashSet<>());
  }

  /** The tags that a value from no table may have lost: those of a column of the same name that was seen in a table. */
  record Lost(Origin of, Set<String> tags) {}

  /** A tagged leaf of a table, or of the folder that is read if no table is known, by its dotted path in files. */
  record Origin(String table, String column) {
    /** Returns the top-level column of it. */
    Origin wholeColumn() {
      return new Origin(table, column.split("\\.", 2)[0]);
    }
  }

  /** An origin, and the path of files below the value to where it is; an empty path: it may be anywhere in the value. */
  record Placed(Origin origin, List<String> at) {
    /** Returns it for the part of the value at a path; null if it is not there. */
    private Placed below(List<String> path) {
      if (at.size() <= path.size()) {
        return path.subList(0, at.size()).equals(at) ? new Placed(origin, List.of()) : null;
      }
      return at.subList(0, path.size()).equals(path) ? new Placed(origin, at.subList(path.size(), at.size())) : null;
    }
  }

  Set<Origin> origins() {
    return placedOrigins.stream().map(Placed::origin).collect(Collectors.toCollection(LinkedHashSet::new));
  }

  /** Returns the same for the part of the value at a path: without the columns that are elsewhere in it. */
  Carried below(List<String> path) {
    return withPlaces(each -> each.below(path));
  }

  /** Returns the same for a value that has this one at a path. */
  Carried within(List<String> path) {
    return withPlaces(each -> new Placed(each.origin(), FieldTags.longer(path, each.at())));
  }

  /** Returns the same for a value that was made of this one in a way that does not show where its parts are. */
  Carried anywhere() {
    return withPlaces(each -> new Placed(each.origin(), List.of()));
  }

  /** Makes it that of a value that was made of it in a way that does not show where its parts are. */
  void moveAnywhere() {
    if (placedOrigins.stream().anyMatch(each -> !each.at().isEmpty())) {
      Carried moved = anywhere();
      placedOrigins.clear();
      placedOrigins.addAll(moved.placedOrigins);
    }
  }

  private Carried withPlaces(UnaryOperator<Placed> change) {
    Carried changed = new Carried();
    changed.addAll(this);
    changed.placedOrigins.clear();
    placedOrigins.stream().map(change).filter(each -> each != null).forEach(changed.placedOrigins::add);
    return changed;
  }

  boolean isEmpty() {
    return size() == 0;
  }

  /** Returns the number of all these entries, which only grows. */
  int size() {
    return tags.size() + placedOrigins.size() + declassifiedOrigins.size() + losses.size();
  }

  void addAll(Set<String> more) {
    tags.addAll(more);
  }

  void addAll(Carried other) {
    tags.addAll(other.tags);
    placedOrigins.addAll(other.placedOrigins);
    declassifiedOrigins.addAll(other.declassifiedOrigins);
    losses.addAll(other.losses);
  }

  /** Adds the columns of another value, but none of its tags. */
  void addDeclassified(Carried other) {
    declassifiedOrigins.addAll(other.origins());
    declassifiedOrigins.addAll(other.declassifiedOrigins);
  }

  void add(Lost loss) {
    losses.add(loss);
  }

  void add(Placed origin) {
    placedOrigins.add(origin);
  }
}
