package io.sparkcrypt;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/**
 * Whose keys a plan's tables are read with: an option of each read.
 *
 * <p>Spark's cache serves a plan that equals one that was cached, whoever asks, and reads with other options are not equal. For
 * Hive's SerDe, whose properties are left out of that comparison, the mark is a condition that always holds; the optimiser takes
 * it away later, and goes through the whole plan once more for it.
 *
 * <p>A reader is his key service's configuration: sessions of one JVM that have one share its helper, and with it the credential.
 * It is the one that the session is under, never one that SET names: nobody can do without a mark of his own, so it is no secret.
 */
final class ReaderMark {
  /** Not one of the properties that the helper judges. */
  private static final String OPTION = "sparkcrypt.reader";

  private static final String PREFIX = "sparkcrypt reader ";
  private static final int SHOWN_BYTES = 16;

  private final String text;

  private ReaderMark(String text) {
    this.text = text;
  }

  static ReaderMark of(SessionPolicy policy) {
    String keyService;
    try {
      keyService = String.valueOf(policy.pinnedKeyService());
    } catch (ParquetCryptoRuntimeException e) {
      keyService = "none: " + policy.text(); // nobody's: files refuse the session, and it is served nothing that others have cached
    }
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(keyService.getBytes(StandardCharsets.UTF_8));
      return new ReaderMark(PREFIX + HexFormat.of().formatHex(digest, 0, SHOWN_BYTES));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e); // every Java has it
    }
  }

  String text() {
    return text;
  }

  LogicalPlan on(LogicalPlan node) {
    Object relation = ReadTable.relationOf(node);
    if (relation != null) {
      Object options = Calls.call(relation, "options");
      Object marked = Calls.copy(relation, options, Calls.with(options, Map.of(OPTION, text)));
      return node.makeCopy(Calls.values(node, relation, marked));
    }
    return new Filter(new EqualNullSafe(Catalyst.text(text), Catalyst.text(text)), node);
  }

  boolean isOn(LogicalPlan node) {
    return text.equals(textOn(node));
  }

  /** Whether another reader's mark is on this node. */
  boolean isOther(LogicalPlan node) {
    String found = textOn(node);
    return found != null && found.startsWith(PREFIX) && !found.equals(text);
  }

  boolean isSame(ReaderMark other) {
    return text.equals(other.text);
  }

  private static String textOn(LogicalPlan node) {
    if (node instanceof Filter filter
        && filter.condition() instanceof EqualNullSafe same
        && same.left() instanceof Literal left
        && same.right() instanceof Literal right
        && left.equals(right)) {
      return String.valueOf(left.value());
    }
    Object relation = ReadTable.relationOf(node);
    return relation == null ? null : (String) Calls.orNull(Calls.call(Calls.call(relation, "options"), "get", OPTION));
  }
}
