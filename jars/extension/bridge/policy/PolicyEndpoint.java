package io.sparkcrypt;

import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;
import scala.Function1;
import scala.PartialFunction;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * An endpoint that answers executors with the policy that the driver has for a token, or "" if it has none. It registers nothing.
 */
final class PolicyEndpoint implements RpcEndpoint {
  private final RpcEnv env;

  PolicyEndpoint(RpcEnv env) {
    this.env = env;
  }

  @Override
  public RpcEnv rpcEnv() {
    return env;
  }

  @Override
  public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
    return new Reply(context);
  }

  private static final class Reply extends AbstractPartialFunction<Object, BoxedUnit> {
    private final RpcCallContext context;

    Reply(RpcCallContext context) {
      this.context = context;
    }

    @Override
    public boolean isDefinedAt(Object message) {
      return message instanceof String;
    }

    @Override
    @SuppressWarnings("unchecked") // Scala's Unit has one value
    public <A extends Object, B> B applyOrElse(A message, Function1<A, B> otherwise) {
      if (!isDefinedAt(message)) {
        return otherwise.apply(message);
      }
      String known = RegisteredPolicies.policyOf((String) message);
      context.reply(known == null ? "" : known);
      return (B) BoxedUnit.UNIT;
    }
  }
}
