package conformance

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"flightline/shared/testenv"
)

var update = flag.Bool("update", false, "rewrite generated documents")

const docsHead = `# Holding a server against the contract

<!-- Generated from services/conformance by TestGeneratedScenarios; ` + "`task gen`" + ` rewrites it. -->

` + "`flightline conform`" + ` plays the contract's scenarios against any server, Flightline or not, over HTTP, and answers with a table:

` + "```" + `
$ flightline conform --url http://127.0.0.1:8080 --api-key KEY --make
SCENARIO             SECTION    RESULT  TOOK  DETAIL
run                  Endpoints  pass    0.1s
runsync              Endpoints  pass    0.2s
…
` + "```" + `

It ends with code 0 if nothing failed, 1 if a scenario failed or none could be played, 2 if the command line is wrong, 3 if the server cannot be reached.
` + "`-o json`" + ` is for scripts. ` + "`--only` and `--skip`" + ` select scenarios by name (` + "`--only 'runsync*'`" + `). It takes about a minute.

A scenario whose needs are not met is skipped, with the reason, and is never a pass. There are three ways to meet them:

- ` + "`--make`" + `: a Flightline makes an endpoint for it and lets a worker in (the key must be an administrator's); both are deleted at the end. Conform
  is the worker, so it knows what becomes of each job. This plays everything.
- ` + "`--worker-env FILE`" + `: the same, on any server of RunPod's worker protocol. The file holds the worker's environment, as ` + "`flightline worker env ENDPOINT`" + `
  prints it. The endpoint must have no other worker, and no jobs of anybody else: those that wait there are purged.
- Neither: ` + "`--endpoint`" + ` names an endpoint whose handler returns its input, ` + "`--slow-endpoint`" + ` one whose jobs run for 10 s to 60 s, ` + "`--failing-endpoint`" + ` one whose
  jobs fail, ` + "`--streaming-endpoint`" + ` one whose jobs stream, ` + "`--idle-endpoint`" + ` one without workers, whose waiting jobs are purged only with ` + "`--purge`" + `.

Further: ` + "`--rates`" + ` goes over rate limits, ` + "`--retention`" + ` waits up to six minutes for results to be forgotten. Webhooks are received on a port of 127.0.0.1; for a
server elsewhere say ` + "`--webhook-listen` and, if it is reached by another address, `--webhook-url`" + `. Pods are looked up at ` + "`--rest-url`" + `.

The section is the contract's; what it leaves open is not tested, but for ` + "`Clients`" + `, which is what the published clients need besides
(` + "`--skip 'client-*'`" + ` leaves it out), the ` + "`Retry-After`" + ` of a 429, and the secret of ` + "`s3Config`" + `, which must not be shown. A MB may be 10^6 or 2^20 bytes.

| scenario | section | what is shown | needs |
|---|---|---|---|
`

func TestGeneratedScenarios(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(docsHead)
	for _, s := range Scenarios() {
		fmt.Fprintf(&doc, "| `%s` | %s | %s | %s |\n", s.Name, s.Section, s.Shows, strings.Join(s.Needs, ", "))
	}
	const path = "../../docs/conform.md"
	testenv.Golden(t, *update, path, doc.String())
}
