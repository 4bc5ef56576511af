package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;

/**
 * The log of access events of one policy's readers, and whether a read may continue without it.
 *
 * <p>The policy is the pinned one, so neither SET nor a table's property chooses the log. Two objects are equal if their policies'
 * texts are, so an object can replace the text as a key of maps.
 */
final class AccessLogPlace {
  private static final int MOST = 256;
  private static final Map<String, AccessLogPlace> BY_POLICY = Newest.synchronizedMap(MOST);

  final String policy;
  final boolean isRequired;
  private final boolean isKept;

  private AccessLogPlace(String policy) {
    JsonNode said = Wire.parse(policy).path("access_log"); // the helper refuses what is no policy in each write and read
    this.policy = policy;
    this.isKept = !said.isMissingNode();
    this.isRequired = said.path("required").asBoolean(false);
  }

  /** Returns the log, or null if there is no policy or it names none. */
  static AccessLogPlace of(String policy) {
    if (policy == null) {
      return null;
    }
    AccessLogPlace place = BY_POLICY.computeIfAbsent(policy, AccessLogPlace::new);
    return place.isKept ? place : null;
  }

  @Override
  public boolean equals(Object other) {
    return this == other || other instanceof AccessLogPlace place && policy.equals(place.policy);
  }

  @Override
  public int hashCode() {
    return policy.hashCode();
  }
}
