// Package schema holds openapi.json against a running server with schemathesis,
// which makes requests that the document allows, and others that it forbids.
package schema

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"flightline/e2e/require"
	"flightline/shared/testenv/program"
)

func TestMain(m *testing.M) { program.Main(m) }

// The server takes what the document allows, refuses what it forbids, and answers
// as it says. schemathesis.toml says what is left out, and why.
func TestTheServerIsWhatItsDocumentSays(t *testing.T) {
	if !require.Requested("schemathesis") {
		t.Skip("takes three minutes; a step of .ci/run is FLIGHTLINE_REQUIRE=schemathesis go test ./e2e/schema")
	}
	tool := filepath.Join(require.Clients(t), "schema", "bin", "schemathesis")
	if _, err := os.Stat(tool); err != nil {
		require.Skip(t, "schemathesis", "run e2e/clients/install")
	}
	config, err := filepath.Abs("schemathesis.toml")
	if err != nil {
		t.Fatal(err)
	}
	const key = "schema-admin-key"
	s := program.New(t)
	url := s.Start("dev", "--api-key", key, "--limits", "off").Line(program.Ready)
	cmd := exec.CommandContext(t.Context(), tool, "--config-file", config, "run", url+"/openapi.json",
		"--phases", "coverage", "--continue-on-failure", "--no-color", "--seed", "1",
		"--request-timeout", "3", // long polls and streams hold longer: that is no finding
		"--exclude-checks", "ignored_auth", // unknown keys are limited to 20 a second; e2e/contract asks without a key
		"--header", "Authorization: Bearer "+key)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
