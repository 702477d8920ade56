// Package console walks through the console as a person would: a real dev with
// jobs, workers, failures and webhooks, and a real browser, Debian's chromium.
// It is a module of its own, so that the browser's protocol is no dependency of
// Flightline. axe-core judges accessibility, TypeScript the types of the
// console's modules; e2e/clients/install installs both. What is missing is
// skipped, unless it is required (package require).
package console

import (
	"testing"

	"flightline/shared/testenv/program"
)

func TestMain(m *testing.M) { program.Main(m) }

// screens are the parts of the console, each with the test that walks through it.
// They share one dev and run one after the other.
var screens = []struct {
	name string
	walk func(*testing.T, *site)
}{
	{"sign in", walkSignIn},
	{"scopes", walkScopes},
	{"failures", walkFailures},
	{"workers", walkWorkers},
	{"machines", walkMachines},
	{"scaling", walkScaling},
	{"webhooks", walkWebhooks},
	{"events", walkEvents},
	{"system", walkSystem},
	{"overview", walkOverview},
	{"endpoint", walkEndpoint},
	{"jobs", walkJobs},
	{"job", walkJob},
	{"sent once", walkSentOnce},
	{"rate", walkRate},
	{"stream", walkStream},
	{"playground", walkTry},
	{"keyboard", walkKeyboard},
	{"live updates", walkLive},
}

func TestScreens(t *testing.T) {
	s := newSite(t)
	for _, screen := range screens {
		t.Run(screen.name, func(t *testing.T) { screen.walk(t, s) })
	}
}
