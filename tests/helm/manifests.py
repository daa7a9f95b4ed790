"""Reads rendered manifests for the tests of the chart.

manifests.py json FILE...        prints {FILE: [document, ...]} as JSON; FILE may be - for the standard input
manifests.py validate FILE...    checks each document against the schemas of four versions of Kubernetes; an unknown kind is
                                 a failure too, unless it is one of CUSTOM, which check_custom.mjs checks
"""

import functools
import json
import sys

import yaml

# The oldest one that the chart supports, and the newest that there is a schema for.
VERSIONS = ["1.30", "1.33", "1.35", "1.37"]
CUSTOM = {"HTTPRoute", "PodMonitor", "PrometheusRule", "ServiceMonitor"}


class UniqueKeys(yaml.CSafeLoader):
    """Refuses a mapping with a repeated key, of which Kubernetes would take the last one silently."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        repeated = {key for key in keys if keys.count(key) > 1}
        if repeated:
            raise yaml.constructor.ConstructorError(None, None, f"repeated keys {repeated}", node.start_mark)
        return super().construct_mapping(node, deep)


def documents(path):
    text = sys.stdin.read() if path == "-" else open(path, encoding="utf-8").read()
    return [document for document in yaml.load_all(text, Loader=UniqueKeys) if document]


def validate(paths):
    from kubernetes_validate import SchemaNotFoundError, ValidationError, utils

    # The library reads and parses the schemas again for each document.
    utils.schema_contents = functools.lru_cache(maxsize=None)(utils.schema_contents)
    seen, failures = set(), []
    for path in paths:
        for document in documents(path):
            text = json.dumps(document, sort_keys=True)
            if document["kind"] in CUSTOM or text in seen:
                continue
            seen.add(text)
            for version in VERSIONS:
                try:
                    utils.validate(document, version, strict=True)
                except ValidationError as error:
                    place = ".".join(str(part) for part in error.path)
                    failures.append(f"{path}: {utils.kn(document)} in {version}: {place}: {error.message}")
                except SchemaNotFoundError as error:
                    failures.append(f"{path}: {utils.kn(document)}: {error.message}")
    print("\n".join(failures) or f"{len(seen)} documents are valid in {', '.join(VERSIONS)}")
    return 1 if failures else 0


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    if command == "validate":
        sys.exit(validate(paths))
    print(json.dumps({path: documents(path) for path in paths}))
