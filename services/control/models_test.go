package control

import (
	"fmt"
	"testing"
)

// A template, a pod and an endpoint name the models of the cache, and give them up.
func TestTheModelCacheIsSetAndTakenAway(t *testing.T) {
	s := start(t)
	for path, made := range map[string]string{
		"/templates": `"name":"qwen","imageName":"vllm:1"`, "/pods": `"imageName":"vllm:1"`, "/endpoints": `"id":"ep"`,
	} {
		for list, text := range map[string]string{
			`["a/b","../c"]`: `modelCache[1] must be a model as ORGANIZATION/NAME of at most 193 bytes, got "../c"`,
			`["a/b","a/b"]`:  `modelCache[1] must differ from the others, got "a/b" again`,
			`"a/b"`:          "modelCache must be an array",
		} {
			s.expect(path, s.do("POST", path, fmt.Sprintf(`{%s,"modelCache":%s}`, made, list)), 400, "invalid_request", text)
		}
		got := s.do("POST", path, fmt.Sprintf(`{%s,"modelCache":["Qwen/Qwen3-8B","gpt2"]}`, made))
		id, _ := got.body["id"].(string)
		if list := fmt.Sprint(got.body["modelCache"]); got.status/100 != 2 || list != "[Qwen/Qwen3-8B gpt2]" {
			t.Fatalf("%s: got %d %s, want both models", path, got.status, got.raw)
		}
		s.expect(path, s.do("PATCH", path+"/"+id, `{"modelCache":["a b"]}`), 400, "invalid_request", `modelCache[0] must be a model as ORGANIZATION/NAME of at most 193 bytes, got "a b"`)
		if got = s.do("PATCH", path+"/"+id, `{"modelCache":["a/b"]}`); fmt.Sprint(got.body["modelCache"]) != "[a/b]" {
			t.Errorf("%s: got %s, want a/b", path, got.raw)
		}
		if got = s.do("PATCH", path+"/"+id, `{"modelCache":[]}`); got.status != 200 || got.body["modelCache"] != nil {
			t.Errorf("%s: got %s, want no models", path, got.raw)
		}
	}
}
