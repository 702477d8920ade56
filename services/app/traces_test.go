package app

import (
	"strings"
	"testing"
)

func TestTheAddressOfATraceIsChecked(t *testing.T) {
	t.Parallel()
	for address, right := range map[string]bool{
		"": true, "https://grafana.example/explore?traceID={trace}": true, "http://127.0.0.1:16686/trace/{trace}": true,
		"https://grafana.example/explore?left=%7B%22query%22:%22{trace}%22%7D#{trace}": true, "HTTPS://h/{trace}": true, "https://h?t={trace}": true,
		"https://grafana.example/": false, "javascript:alert('{trace}')": false, "//grafana.example/{trace}": false, "/{trace}": false,
		"https://{trace}.example/": false, "https://h{trace}/{trace}": false, "{trace}://h/{trace}": false, "https://u:p@h/{trace}": false, "https:///{trace}": false, "https://h/%zz{trace}": false,
	} {
		err := Traces{TraceURL: address}.check()
		if (err == nil) != right {
			t.Errorf("%q: got %v", address, err)
		}
		if err != nil && !strings.Contains(err.Error(), "--trace-url") {
			t.Errorf("%q: got %v, want the name of the flag", address, err)
		}
	}
}
