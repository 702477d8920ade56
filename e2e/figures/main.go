// Command figures counts the sources of a checkout: lines, the largest package
// and type, comments, examples and exported names. It prints a table.
//
//	go run ./e2e/figures [-root DIR]
//
// Only files that git tracks count. The product is streams, shared and services;
// packages there that exist for tests (testenv, certstest) and e2e without its
// tests are the test tools.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"flightline/e2e/checkout"
)

func main() {
	root := flag.String("root", ".", "the folder of the checkout")
	flag.Parse()
	if err := run(context.Background(), *root, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, out io.Writer) error {
	files, err := checkout.List(ctx, root)
	if err != nil {
		return err
	}
	c := newCounts()
	for _, name := range files {
		if path.Ext(name) != ".go" {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if err := c.add(name, source); err != nil {
			return err
		}
	}
	var table bytes.Buffer
	c.print(&table)
	_, err = out.Write(table.Bytes())
	return err
}
