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
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;

/**
 * The mark of the reader whose keys a plan's tables are read with, as an option of each read.
 *
 * <p>Spark's cache serves any plan that equals a cached one, whoever asks, and reads with different options are not equal. Hive's
 * SerDe tables leave their properties out of that comparison, so their mark is a condition that is always true; the optimiser
 * removes it later, with one more pass over the whole plan.
 *
 * <p>A reader is identified by the configuration of the key service: sessions of one JVM with the same one share its helper, and
 * so the credential. It is the session's pinned configuration, never one that SET names: no session can do without its mark, so
 * it is no secret.
 */
record ReaderMark(String text) {
  /** Not one of the properties for the helper. */
  private static final String OPTION = "sparkcrypt.reader";

  private static final String PREFIX = "sparkcrypt reader ";
  private static final int SHOWN_BYTES = 16;

  static ReaderMark of(SessionPolicy policy) {
    String keyService;
    try {
      keyService = String.valueOf(policy.pinnedKeyService());
    } catch (ParquetCryptoRuntimeException e) {
      keyService = "none: " + policy.text(); // no reader's: files refuse the session, and it gets nothing that others have cached
    }
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(keyService.getBytes(StandardCharsets.UTF_8));
      return new ReaderMark(PREFIX + HexFormat.of().formatHex(digest, 0, SHOWN_BYTES));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e); // every Java has it
    }
  }

  LogicalPlan on(LogicalPlan node) {
    HadoopFsRelation relation = ReadTable.relationOf(node);
    if (relation != null) {
      Object options = relation.options();
      Object marked = Calls.copy(relation, options, Calls.with(options, Map.of(OPTION, text)));
      return node.makeCopy(Calls.values(node, relation, marked));
    }
    return new Filter(new EqualNullSafe(Trees.text(text), Trees.text(text)), node);
  }

  boolean isOn(LogicalPlan node) {
    return text.equals(textOn(node));
  }

  /** Returns whether this node has the mark of another reader. */
  boolean isOther(LogicalPlan node) {
    String found = textOn(node);
    return found != null && found.startsWith(PREFIX) && !found.equals(text);
  }

  private static String textOn(LogicalPlan node) {
    if (node instanceof Filter filter
        && filter.condition() instanceof EqualNullSafe same
        && same.left() instanceof Literal left
        && same.right() instanceof Literal right
        && left.equals(right)) {
      return String.valueOf(left.value());
    }
    HadoopFsRelation relation = ReadTable.relationOf(node);
    return relation == null ? null : Calls.orNull(relation.options().get(OPTION));
  }
}
