package clients

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"flightline/shared/worker"
)

// perWord is how long the parrots take for a word, as those of chat.py do.
var perWord = map[string]time.Duration{"parrot": 0, "slow-parrot": 500 * time.Millisecond}

type object = map[string]any

// openAIJob is the input of a job from OpenAI's clients.
type openAIJob struct {
	id    string
	Route string `json:"openai_route"` //nolint:tagliatelle // RunPod's name
	Body  struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Prompt   string `json:"prompt"`
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
		Input  any    `json:"input"`
		Format string `json:"encoding_format"` //nolint:tagliatelle // OpenAI's name
	} `json:"openai_input"` //nolint:tagliatelle // RunPod's name
}

// parrot answers what chat.py does: an answer in one piece is the output, and
// an event stream is emitted as text that is cut anywhere.
func (w *goWorker) parrot(ctx context.Context, j *worker.Job) (output any, err error) {
	in := openAIJob{id: j.ID}
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return nil, err
	}
	said := in.Body.Prompt
	if n := len(in.Body.Messages); n > 0 {
		said = in.Body.Messages[n-1].Content
	}
	_, known := perWord[in.Body.Model]
	talks := in.Route == "/v1/chat/completions" || in.Route == "/v1/completions"
	switch {
	case in.Route == "/v1/models":
		return object{"object": "list", "data": []object{model("parrot"), model("slow-parrot")}}, nil
	case !talks && in.Route != "/v1/embeddings":
		return refused(404, "NotFoundError", "no such route: "+in.Route), nil
	case !known:
		return refused(404, "NotFoundError", fmt.Sprintf("The model `%s` does not exist.", in.Body.Model)), nil
	case !talks:
		return in.embeddings()
	case said == "":
		return refused(400, "BadRequestError", "there is nothing to say"), nil
	case in.Body.Stream:
		err = in.stream(ctx, j, strings.SplitAfter(said, " "))
	default:
		output, err = in.whole(ctx, strings.SplitAfter(said, " "))
	}
	if errors.Is(err, worker.ErrLost) {
		<-ctx.Done() // its emit may fail before its context ends
	}
	if err != nil {
		w.note(j.ID, context.Cause(ctx))
	}
	return output, err
}

func model(name string) object {
	return object{"id": name, "object": "model", "created": 0, "owned_by": "flightline"}
}

func refused(code int, kind, message string) object {
	return object{"error": object{"message": message, "type": kind, "code": code}}
}

// say takes the time that a word takes.
func (in *openAIJob) say(ctx context.Context, word string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(perWord[in.Body.Model]):
	}
	if word == "choke" {
		return errors.New("the parrot choked")
	}
	return nil
}

func (in *openAIJob) whole(ctx context.Context, words []string) (object, error) {
	for _, word := range words {
		if err := in.say(ctx, word); err != nil {
			return nil, err
		}
	}
	answer, n := in.answer(strings.Join(words, ""), "stop"), len(words)
	answer["usage"] = object{"prompt_tokens": n, "completion_tokens": n, "total_tokens": 2 * n}
	return answer, nil
}

// stream cuts the events as chat.py does.
func (in *openAIJob) stream(ctx context.Context, j *worker.Job, words []string) error {
	var rest string
	for i, word := range words {
		if err := in.say(ctx, word); err != nil {
			return err
		}
		rest += in.event(strings.TrimSuffix(word, " "), i, nil)
		cut := len(rest) - (i+1)%7
		if err := j.Emit(ctx, rest[:cut]); err != nil {
			return err
		}
		rest = rest[cut:]
	}
	return j.Emit(ctx, rest+in.event("", 0, "stop")+"data: [DONE]\n\n")
}

// event is that of the word in this place.
func (in *openAIJob) event(word string, place int, reason any) string {
	if place > 0 {
		word = " " + word
	}
	text, err := json.Marshal(in.answer(word, reason))
	if err != nil {
		panic(err) // there is nothing in it but text
	}
	return fmt.Sprintf("data: %s\n\n", text)
}

// answer says this, and why it ends, in an answer or an event of one.
func (in *openAIJob) answer(said string, reason any) object {
	kind, choice := "text_completion", object{"index": 0, "text": said, "logprobs": nil}
	if in.Route == "/v1/chat/completions" {
		part := "message"
		if kind = "chat.completion"; in.Body.Stream {
			kind, part = "chat.completion.chunk", "delta"
		}
		choice = object{"index": 0, part: object{"role": "assistant", "content": said}}
	}
	choice["finish_reason"] = reason
	return object{"id": "cmpl-" + in.id, "object": kind, "created": 0, "model": in.Body.Model, "choices": []object{choice}}
}

// embeddings are numbers, or their bytes, as the client asks.
func (in *openAIJob) embeddings() (object, error) {
	texts, several := in.Body.Input.([]any)
	if !several {
		texts = []any{in.Body.Input}
	}
	var all []object
	for i, text := range texts {
		vector := []float32{float32(len(fmt.Sprint(text))) + 0.25, 0.5}
		var embedding any = vector
		if in.Body.Format == "base64" {
			var b bytes.Buffer
			if err := binary.Write(&b, binary.LittleEndian, vector); err != nil {
				return nil, err
			}
			embedding = base64.StdEncoding.EncodeToString(b.Bytes())
		}
		all = append(all, object{"object": "embedding", "index": i, "embedding": embedding})
	}
	return object{"object": "list", "data": all, "model": in.Body.Model, "usage": object{"prompt_tokens": 1, "total_tokens": 1}}, nil
}
