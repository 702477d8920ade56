// Package e2e looks at Flightline from outside: what it links, how its
// packages depend on each other, and what it does as a whole.
package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"flightline/e2e/checkout"
)

// module begins the import path of each package of ours.
var module = strings.TrimSuffix(reflect.TypeFor[listed]().PkgPath(), "e2e")

const (
	natsClient = "github.com/nats-io/"
	natsServer = "github.com/nats-io/nats-server/v2/"
)

// layers is the picture of docs/architecture, from the bottom up: a package
// imports only packages of ours in lower layers. A name ending in /... stands
// for all packages below it. A new package takes its place here first.
var layers = [][]string{
	{"shared/mutation", "shared/bus/barrier", "shared/retry", "shared/wakeup", "shared/terminal", "shared/disk", "shared/testenv/port"},
	{"shared/job", "shared/endpoint", "shared/pod", "shared/ratelimit", "shared/stats", "shared/process", "shared/bus", "shared/tlsconfig", "shared/netguard", "shared/web/framingtest", "e2e/require", "e2e/gauge", "e2e/chaos/ledger", "e2e/chaos/network"},
	{"streams", "shared/api", "shared/tlsconfig/certstest", "shared/bus/embedded", "shared/host", "shared/telemetry", "shared/placement", "e2e/checkout"},
	{"shared/record"},
	{"shared/chunks"},
	{"shared/queue", "shared/events", "shared/logs", "shared/registry", "shared/storehealth", "shared/testenv", "shared/telemetry/otlp"},
	{"shared/deliveries", "shared/logs/logstest", "e2e/proxy"},
	{"shared/web", "shared/openapi", "shared/metrics", "shared/worker", "shared/client"},
	{"shared/worker/s3", "shared/testenv/backend", "shared/testenv/program", "services/autoscaler/driver", "services/autoscaler/arbiter", "services/api/openai"},
	{
		"services/api", "services/control", "services/gateway", "services/webhook", "services/recorder",
		"services/autoscaler", "services/worker", "services/cli", "services/admin", "services/console",
		"services/conformance",
	},
	{"services/app"},
	{"services/flightline"},
	{"e2e", "e2e/..."},
}

// Importers of the worker SDK must not link our servers.
func TestWorkerStaysSmall(t *testing.T) {
	forbid(t, "shared/worker", map[string]string{
		"github.com/gofiber/":                 "HTTP server",
		natsServer:                            "embedded bus",
		"github.com/minio/":                   "lives in worker/s3",
		"github.com/spf13/":                   "command line",
		"go.opentelemetry.io/otel/sdk/":       "the program around a worker picks what sends its spans",
		"go.opentelemetry.io/otel/exporters/": "same",
		module + "services/":                  "downward only",
		module + "shared/web/":                "HTTP server",
	})
}

// The public client and the command line offer what HTTP offers.
func TestClientsSpeakHTTPOnly(t *testing.T) {
	for _, name := range []string{"shared/client", "services/cli", "services/conformance"} {
		forbid(t, name, map[string]string{
			natsClient:            "clients speak HTTP",
			"github.com/gofiber/": "HTTP server",
			"github.com/minio/":   "lives in worker/s3",
		})
	}
}

// What a thing is does not depend on where it is kept.
func TestDomainNeedsTheStandardLibraryOnly(t *testing.T) {
	for _, name := range []string{"shared/job", "shared/endpoint", "shared/pod", "shared/ratelimit", "shared/stats"} {
		for _, dep := range find(t, name).Deps {
			if !standard(dep) {
				t.Errorf("%s links %s", name, dep)
			}
		}
	}
}

func TestTheBusKnowsNoHTTP(t *testing.T) {
	for _, name := range []string{"streams", "shared/record", "shared/chunks", "shared/queue", "shared/deliveries", "shared/events", "shared/registry"} {
		forbid(t, name, map[string]string{"github.com/gofiber/": "HTTP server", "github.com/minio/": "S3 client"})
	}
}

// A message server is linked only by what runs one.
func TestTheServerIsLinkedByFew(t *testing.T) {
	mayLink := []string{"shared/bus/embedded", "shared/testenv", "shared/testenv/backend", "shared/testenv/program", "services/app", "services/flightline"}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if slices.ContainsFunc(p.Imports, hasPrefix(natsServer)) && name != "shared/bus/embedded" {
			t.Errorf("%s imports nats-server, want only shared/bus/embedded to", name)
		}
		if !slices.Contains(mayLink, name) && !strings.HasPrefix(name, "e2e") {
			p.mustNotLink(t, map[string]string{natsServer: "embedded bus"})
		}
	}
}

func TestImportsPointDownward(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		level := layerOf(from)
		if level < 0 {
			t.Errorf("%s is in no layer: give it its place in layers", from)
			continue
		}
		for _, imported := range p.Imports {
			to, ours := strings.CutPrefix(imported, module)
			// Within e2e, a program may use packages of its own folder.
			if !ours || layerOf(to) < level || strings.HasPrefix(to, from+"/") && strings.HasPrefix(from, "e2e/") {
				continue
			}
			t.Errorf("%s (layer %d) imports %s (layer %d), want lower layers only", from, level, to, layerOf(to))
		}
	}
}

func TestLayersNameEachPackageOnce(t *testing.T) {
	all := slices.Concat(layers...)
	slices.Sort(all)
	if got := slices.Compact(slices.Clone(all)); len(got) != len(all) {
		t.Errorf("got a package twice in %v", all)
	}
}

// layerOf is the index of the package's layer, -1 if it has none.
func layerOf(name string) int {
	for level, names := range layers {
		if slices.Contains(names, name) {
			return level
		}
	}
	return slices.IndexFunc(layers, func(names []string) bool {
		return slices.ContainsFunc(names, func(pattern string) bool {
			below, wild := strings.CutSuffix(pattern, "...")
			return wild && strings.HasPrefix(name, below)
		})
	})
}

// listed is what go list prints about a package.
type listed struct {
	ImportPath string
	Imports    []string // direct, without those of its tests
	Deps       []string // all, direct or not
}

// forbid fails the test if the package, should it exist, links a package
// whose path starts with one of the prefixes; each has its reason.
func forbid(t *testing.T, name string, prefixes map[string]string) {
	t.Helper()
	find(t, name).mustNotLink(t, prefixes)
}

func (p listed) mustNotLink(t *testing.T, prefixes map[string]string) {
	t.Helper()
	for _, dep := range p.Deps {
		for prefix, why := range prefixes {
			if strings.HasPrefix(dep+"/", prefix) {
				t.Errorf("%s links %s: %s", p.ImportPath, dep, why)
			}
		}
	}
}

// find is the package, or an empty one if it is not written yet.
func find(t *testing.T, name string) listed {
	t.Helper()
	all := packages(t)
	i := slices.IndexFunc(all, func(p listed) bool { return p.ImportPath == module+name })
	if i < 0 {
		return listed{}
	}
	return all[i]
}

// packages returns the packages of the repository, which are not all of the
// folder: a user may have added some.
func packages(t *testing.T) []listed {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	tracked := checkout.Packages(t, "..", path.Clean(module))
	ours := slices.DeleteFunc(slices.Clone(all), func(p listed) bool { return !slices.Contains(tracked, p.ImportPath) })
	if len(ours) == 0 {
		t.Fatal("go list: got no packages")
	}
	return ours
}

// list asks the go tool once for all packages of the module. Packages that do
// not compile are listed too: telling that is the compiler's business.
var list = sync.OnceValues(func() ([]listed, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", module+"...")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		//nolint:musttag // go list spells its keys as Go does
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

// standard reports the standard library, whose first path element has no dot,
// from the rest; our own module has none either.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".") && first != path.Clean(module) ||
		strings.HasPrefix(importPath, "vendor/")
}

func hasPrefix(prefix string) func(string) bool {
	return func(s string) bool { return strings.HasPrefix(s, prefix) }
}
