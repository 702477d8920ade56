package console

import (
	"fmt"
	"strconv"
	"strings"
)

// snippet is a program that does what the page did.
type snippet struct{ Name, Text string }

// snippetsOf are programs that submit a job with this input, a JSON object.
func snippetsOf(endpoint, input string) []snippet {
	shell := strings.ReplaceAll(input, "'", `'\''`)
	return []snippet{
		{"curl", fmt.Sprintf("curl \"$FLIGHTLINE_URL/v2/%s/runsync\" \\\n  -H \"Authorization: Bearer $FLIGHTLINE_API_KEY\" \\\n  -d '{\"input\":%s}'\n", endpoint, shell)},
		{"Python", fmt.Sprintf(`import json
import os

import runpod

runpod.endpoint_url_base = os.environ["FLIGHTLINE_URL"] + "/v2"
runpod.api_key = os.environ["FLIGHTLINE_API_KEY"]
print(runpod.Endpoint(%q).run_sync(json.loads(%s), timeout=60))
`, endpoint, strconv.Quote(input))},
		{"JavaScript", fmt.Sprintf(`const answer = await fetch(process.env.FLIGHTLINE_URL + "/v2/%s/runsync", {
  method: "POST",
  headers: { Authorization: "Bearer " + process.env.FLIGHTLINE_API_KEY },
  body: JSON.stringify({ input: %s }),
});
console.log(await answer.json());
`, endpoint, input)},
		{"Go", fmt.Sprintf(`c, err := client.New(os.Getenv("FLIGHTLINE_URL"), os.Getenv("FLIGHTLINE_API_KEY"))
if err != nil {
	return err
}
j, err := c.RunSync(ctx, %q, client.Request{Input: json.RawMessage(%s)}, 0)
`, endpoint, strconv.Quote(input))},
	}
}
