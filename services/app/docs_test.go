package app

import (
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"flightline/shared/testenv"
)

var update = flag.Bool("update", false, "rewrite generated documents")

const configurationHead = `# Configuration

<!-- Generated from services/app by TestGeneratedConfiguration; ` + "`task gen`" + ` rewrites it. -->

A flag comes before a variable, a variable before the default. Each variable ` + "`FLIGHTLINE_X`" + ` may also be given as
` + "`FLIGHTLINE_X_FILE`" + `, the path of a file that holds the value: that is where secrets belong. An empty variable counts as not set,
and an unknown one is warned of.
A flag that is a secret (` + "`--api-key`, `--bootstrap-key`, `--nats-password`, `--upstream-key`" + `) has a twin, ` + "`--api-key-file PATH`; `-`" + ` is standard input. The secret itself on the command line is a warning:
other users of the machine see it in the list of processes.

The commands that speak to a server (` + "`flightline run`, `endpoint`, `key` …" + `) find it by ` + "`--url` and `--api-key`" + `, then by
` + "`FLIGHTLINE_URL` and `FLIGHTLINE_API_KEY`, then by `dev.json` in the data folder (`--data`, `FLIGHTLINE_DATA`, else `.flightline`)" + `
of a running ` + "`flightline dev`" + `, whose key is sent to it only. At https addresses they believe the authorities of ` + "`--ca` or `FLIGHTLINE_CA`" + `, a file in
PEM, else the system's, and show ` + "`--client-cert` and `--client-key`, or `FLIGHTLINE_CLIENT_CERT` and `FLIGHTLINE_CLIENT_KEY`" + `, to a server that asks.
Several addresses of one Flightline may be given, with commas between them: the next one is tried when one does not answer. They try again for
` + "`--retry-timeout` or `FLIGHTLINE_RETRY_TIMEOUT`" + `, else 10 s, where that cannot do twice what was asked for once.

Not here: flags of single commands, which ` + "`--help`" + ` has; ` + "`flightline conform`" + ` is in [conform.md](conform.md), the ` + "`OTEL_*`" + ` variables are in [tracing.md](tracing.md),
and those of the compose files in [deploy.md](deploy.md). ` + "`flightline healthcheck`" + ` reads ` + "`FLIGHTLINE_LISTEN` and `FLIGHTLINE_TLS_CERT`" + `, and ` + "`--url`" + `.
`

func TestGeneratedConfiguration(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(configurationHead)
	for _, command := range []struct {
		name     string
		settings any
	}{
		{"flightline dev", Config{}},
		{"flightline serve ROLE...", ServeConfig{}},
		{"flightline worker ENDPOINT [-- COMMAND...]", WorkConfig{}},
		{"flightline backup DIR", AdminConfig{}},
		{"flightline restore DIR", RestoreConfig{}},
		{"flightline doctor", DoctorConfig{}},
		{"flightline nats-config", NATSConfig{}},
	} {
		fmt.Fprintf(&doc, "\n## `%s`\n\n| flag | variable | default | |\n|---|---|---|---|\n", command.name)
		rows(&doc, reflect.TypeOf(command.settings))
	}
	const path = "../../docs/configuration.md"
	testenv.Golden(t, *update, path, doc.String())
}

func rows(doc *strings.Builder, settings reflect.Type) {
	for _, field := range settingsIn(settings) {
		standard := field.Tag.Get("default")
		if standard != "" {
			standard = "`" + standard + "`"
		}
		fmt.Fprintf(doc, "| `--%s` | `%s` | %s | %s |\n", field.Tag.Get("flag"), field.Tag.Get("env"), standard, field.Tag.Get("help"))
	}
}
