// Checks the custom resources of the Gateway API and of the Prometheus operator with the schemas of their definitions.
// Reads {FILE: [document, ...]} as JSON from the standard input; prints what is wrong and exits with 1.

import { HTTPRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute';
import { PodMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor';
import { PrometheusRule } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule';
import { ServiceMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor';

const kinds = { HTTPRoute, PodMonitor, PrometheusRule, ServiceMonitor };
let text = '';
for await (const part of process.stdin) text += part;
let checked = 0;
for (const [file, documents] of Object.entries(JSON.parse(text))) {
  for (const document of documents) {
    const Kind = kinds[document.kind];
    if (!Kind) continue;
    checked += 1;
    try {
      if (document.apiVersion !== Kind.apiVersion) throw new Error(`apiVersion is not ${Kind.apiVersion}`);
      new Kind(document).validate();
    } catch (error) {
      console.log(`${file}: ${document.kind}/${document.metadata.name}: ${error.message}`);
      process.exitCode = 1;
    }
  }
}
console.log(`${checked} custom resources checked`);
