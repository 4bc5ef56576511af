package io.sparkcrypt;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;

/** What is known of places, found by the places at, above and below another without a look at all of them. */
final class PlaceIndex<T> {
  private final TreeMap<String, List<Entry<T>>> byPath = new TreeMap<>();

  /** A place, and what is known of it. */
  record Entry<T>(Place place, T value) {}

  void add(Place place, T value) {
    byPath.computeIfAbsent(place.path(), unused -> new ArrayList<>()).add(new Entry<>(place, value));
  }

  /** Returns what is at a place and above it, the nearest first. */
  List<Entry<T>> above(Place place) {
    List<Entry<T>> found = new ArrayList<>();
    for (String path = place.path(); ; path = path.substring(0, Math.max(path.lastIndexOf('/'), 0))) {
      addAlike(found, place, byPath.getOrDefault(path, List.of()));
      if (path.isEmpty()) {
        return found;
      }
    }
  }

  /** Returns what is below a place. */
  List<Entry<T>> below(Place place) {
    List<Entry<T>> found = new ArrayList<>();
    byPath.subMap(place.path() + "/", place.path() + "0").values().forEach(entries -> addAlike(found, place, entries)); // 0 follows the slash
    return found;
  }

  /** Returns all values. */
  List<T> values() {
    return byPath.values().stream().flatMap(List::stream).map(Entry::value).toList();
  }

  private static <T> void addAlike(List<Entry<T>> found, Place place, List<Entry<T>> entries) {
    entries.stream().filter(entry -> place.isAlike(entry.place)).forEach(found::add);
  }
}
