package io.sparkcrypt;

/** A way to throw a checked exception through an interface that declares none: Spark decides by the exception's class. */
final class Sneaky {
  private Sneaky() {}

  @SuppressWarnings("unchecked")
  static <E extends Exception> RuntimeException of(Exception e) throws E {
    throw (E) e;
  }
}
