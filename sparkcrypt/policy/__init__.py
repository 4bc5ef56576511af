"""The meaning of each tag: a policy file, parsed strictly into frozen values.

The loader of files needs PyYAML and is imported separately (``sparkcrypt.policy.load``); everything here runs with the
standard library alone, since it also runs in the helper process of every JVM.
"""

from sparkcrypt.policy.build import policy_from_canonical, policy_from_document
from sparkcrypt.policy.key_service import KeyServiceConfig, canonical_json
from sparkcrypt.policy.model import Policy, TableRule, TagRule
from sparkcrypt.policy.template import KeyTemplate

__all__ = [
    "KeyServiceConfig",
    "KeyTemplate",
    "Policy",
    "TableRule",
    "TagRule",
    "canonical_json",
    "policy_from_canonical",
    "policy_from_document",
]
