package console

import (
	"fmt"
	"strconv"
	"strings"
)

// snippet is a program that does what the page did.
type snippet struct{ Name, Text string }

// exampleJob is the input in the snippets of the playground, unless the page has another one.
const exampleJob = `{"text":"hello"}`

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

// exampleChat is what chatSnippets send, unless the page has something else.
const exampleChat = `{"model":"MODEL","messages":[{"role":"user","content":"hello"}]}`

// chatSnippets are programs that send this body, a JSON object, to the endpoint's OpenAI route.
func chatSnippets(endpoint, body string) []snippet {
	shell := strings.ReplaceAll(body, "'", `'\''`)
	return []snippet{
		{"curl", fmt.Sprintf("curl \"$FLIGHTLINE_URL/v2/%s/openai/v1/chat/completions\" \\\n  -H \"Authorization: Bearer $FLIGHTLINE_API_KEY\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '%s'\n", endpoint, shell)},
		{"Python", fmt.Sprintf(`import json
import os

from openai import OpenAI

client = OpenAI(base_url=os.environ["FLIGHTLINE_URL"] + "/v2/%s/openai/v1", api_key=os.environ["FLIGHTLINE_API_KEY"])
answer = client.chat.completions.create(**json.loads(%s))
print(answer.choices[0].message.content)
`, endpoint, strconv.Quote(body))},
		{"JavaScript", fmt.Sprintf(`const answer = await fetch(process.env.FLIGHTLINE_URL + "/v2/%s/openai/v1/chat/completions", {
  method: "POST",
  headers: { Authorization: "Bearer " + process.env.FLIGHTLINE_API_KEY, "Content-Type": "application/json" },
  body: JSON.stringify(%s),
});
console.log((await answer.json()).choices[0].message.content);
`, endpoint, body)},
		{"Go", fmt.Sprintf(`body := strings.NewReader(%s)
req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("FLIGHTLINE_URL")+"/v2/%s/openai/v1/chat/completions", body)
if err != nil {
	return err
}
req.Header.Set("Authorization", "Bearer "+os.Getenv("FLIGHTLINE_API_KEY"))
req.Header.Set("Content-Type", "application/json")
answer, err := http.DefaultClient.Do(req)
`, strconv.Quote(body), endpoint)},
	}
}
