package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"flightline/shared/job"
	sdk "flightline/shared/worker"
)

// batch is what worker-vllm yields for a job without openai_route: some of the text,
// and the tokens counted so far.
type batch struct {
	Choices []batchChoice `json:"choices"`
	Usage   *batchUsage   `json:"usage,omitempty"`
}

type batchChoice struct {
	Tokens []string `json:"tokens"`
}

type batchUsage struct {
	Input  int `json:"input"`
	Output int `json:"output"`
}

// runPlain runs a job with prompt or messages. Its output is a list of batches; with
// stream each is a chunk, and the output is none.
func (u *upstream) runPlain(ctx context.Context, j *sdk.Job, c call) (any, error) {
	if c.noModel {
		if err := u.nameModel(ctx, &c); err != nil {
			return nil, err
		}
	}
	answer, err := u.send(ctx, c)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if kindOf(answer) != "text/event-stream" {
		return readBatch(ctx, answer.Body)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxOutput)
	for lines.Scan() {
		data, found := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !found {
			continue
		}
		b, ok, err := batchOf(data)
		if ok {
			err = j.Emit(ctx, b)
		}
		if err != nil {
			return nil, err
		}
	}
	switch err := lines.Err(); {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, bufio.ErrTooLong):
		return nil, tooLarge("a line of the model server's answer")
	default:
		return nil, brokeOff(err)
	}
}

// readBatch reads an answer in one piece.
func readBatch(ctx context.Context, from io.Reader) (any, error) {
	body, err := io.ReadAll(io.LimitReader(from, job.MaxOutput))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, brokeOff(err)
	}
	b, ok, err := batchOf(body)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, failure502("the model server's answer is no completion: %.200q", body)
	}
	return []batch{b}, nil
}

// batchOf reads a completion, or an event of its stream. ok is false for what says
// nothing, such as [DONE]. An error that the server sends in place of one is a failure.
func batchOf(data []byte) (b batch, ok bool, err error) {
	type message struct {
		Content string `json:"content"`
	}
	var read struct {
		Choices []struct {
			Text    string  `json:"text"`
			Message message `json:"message"`
			Delta   message `json:"delta"`
		} `json:"choices"`
		Usage *struct {
			Input  int `json:"prompt_tokens"`     //nolint:tagliatelle // OpenAI's names
			Output int `json:"completion_tokens"` //nolint:tagliatelle // as above
		} `json:"usage"`
		Error  json.RawMessage `json:"error"`
		Object string          `json:"object"`
	}
	switch isJSON := json.Unmarshal(bytes.TrimSpace(data), &read) == nil; {
	case !isJSON:
		return b, false, nil
	case isFailure(read.Error):
		return b, false, failure502("the model server failed: %s", read.Error[:min(len(read.Error), maxRefusal)])
	case read.Object == "error": // as vLLM had it before
		return b, false, failure502("the model server failed: %s", data[:min(len(data), maxRefusal)])
	}
	b.Choices = []batchChoice{}
	for _, choice := range read.Choices {
		if text := choice.Text + choice.Message.Content + choice.Delta.Content; text != "" {
			b.Choices = append(b.Choices, batchChoice{Tokens: []string{text}})
		}
	}
	if read.Usage != nil {
		b.Usage = &batchUsage{read.Usage.Input, read.Usage.Output}
	}
	return b, len(b.Choices) > 0 || b.Usage != nil, nil
}

// isFailure reports whether a member error says what is wrong: an object or a text with
// something in it.
func isFailure(member json.RawMessage) bool {
	return len(member) > len(`""`) && (member[0] == '{' || member[0] == '"')
}

// nameModel puts the first model of the server into the call.
func (u *upstream) nameModel(ctx context.Context, c *call) error {
	answer, err := u.send(ctx, call{method: http.MethodGet, route: pathModels})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err = json.NewDecoder(io.LimitReader(answer.Body, job.MaxOutput)).Decode(&models)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil || len(models.Data) == 0:
		return failure502("the model server names no model; name one in input.model")
	}
	body := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.body, &body); err != nil {
		return err
	}
	body["model"], err = json.Marshal(models.Data[0].ID)
	if err != nil {
		return err
	}
	c.body, err = json.Marshal(body)
	return err
}
