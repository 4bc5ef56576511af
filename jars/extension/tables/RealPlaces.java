package io.sparkcrypt;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;

/**
 * Where folders really are: without the policy's aliases, the mounts of viewfs and links of local file systems.
 *
 * <p>No store is asked: mounts are in Hadoop's configuration, and neither HDFS nor object stores have links.
 */
final class RealPlaces {
  private static final String VIEW = "viewfs";
  private static final int MOST_LINKS = 40;
  private static final Logger LOG = CleanLog.of(RealPlaces.class);

  private final SessionPolicy policy;
  private final List<Place.Alias> aliases = new ArrayList<>();
  private final Map<String, List<Place.Alias>> mounts = new HashMap<>();

  RealPlaces(SessionPolicy policy) {
    this.policy = policy;
    policy.aliases().forEach((named, real) -> aliases.add(new Place.Alias(Place.of(named), Place.of(real))));
  }

  /** Returns the real place of a folder that may not exist yet. */
  Place of(String folder) {
    Place place = qualify(folder).without(aliases);
    if (isView(place)) {
      place = place.without(mounts.computeIfAbsent(place.scheme() + "://" + place.authority(), this::mountsOf)).without(aliases);
    }
    boolean isLocal = "file".equals(place.scheme()) && place.path().startsWith("/");
    return isLocal ? new Place("file", "", withoutLinks(place.path())) : place;
  }

  /** Returns the place of a text that may lack its store: streams of Spark 3.5 have paths as their user wrote them. */
  private Place qualify(String folder) {
    Place place = Place.of(folder);
    if (place.scheme() != null && (place.scheme().equals("file") || !place.authority().isEmpty())) {
      return place;
    }
    try {
      Path path = new Path(folder);
      return Place.of(path.getFileSystem(policy.sparkContext().hadoopConfiguration()).makeQualified(path).toString());
    } catch (IOException | RuntimeException e) {
      LOG.debug("which store {} is on cannot be told", folder, e);
      return place;
    }
  }

  private boolean isView(Place place) {
    if (place.scheme() == null || place.scheme().equals("file")) {
      return false;
    }
    Configuration conf = policy.sparkContext().hadoopConfiguration();
    return place.scheme().equals(VIEW) || conf.get("fs." + place.scheme() + ".impl", "").endsWith("ViewFileSystemOverloadScheme");
  }

  private List<Place.Alias> mountsOf(String store) {
    List<Place.Alias> found = new ArrayList<>();
    try {
      FileSystem system = new Path(store + "/").getFileSystem(policy.hadoopConf());
      for (Object mount : (Object[]) Calls.call(system, "getMountPoints")) {
        URI[] targets = (URI[]) Calls.call(mount, "getTargetFileSystemURIs");
        Place named = Place.of(store + ((Path) Calls.call(mount, "getMountedOnPath")).toUri().getPath());
        found.add(new Place.Alias(named, Place.of(new Path(targets[0]).toString())));
      }
    } catch (IOException | RuntimeException e) {
      LOG.warn("{}: its mounts cannot be told, so its folders are known by this name alone: {}", store, e.getMessage());
    }
    return found;
  }

  private static String withoutLinks(String path) {
    try {
      return withoutLinks(java.nio.file.Path.of(path), 0).toString();
    } catch (IOException | InvalidPathException e) {
      return path; // nobody can open it either
    }
  }

  private static java.nio.file.Path withoutLinks(java.nio.file.Path path, int followed) throws IOException {
    try {
      return path.toRealPath();
    } catch (NoSuchFileException e) {
      if (Files.isSymbolicLink(path) && followed < MOST_LINKS) { // to what does not exist yet
        return withoutLinks(path.resolveSibling(Files.readSymbolicLink(path)), followed + 1);
      }
      java.nio.file.Path above = path.getParent();
      return above == null ? path : withoutLinks(above, followed).resolve(path.getFileName()).normalize();
    }
  }
}
