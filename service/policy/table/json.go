package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Fields returns the mapping that an object of JSON is, for NewRequest. It keeps the order of keys,
// and numbers as they are written.
func Fields(text []byte) (*yaml.Node, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return next(d)
}

func next(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		return group(d, v)
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(v.String(), ".eE") {
			tag = "!!float"
		}
		return scalar(tag, v.String()), nil
	case string:
		return scalar("!!str", v), nil
	case bool:
		return scalar("!!bool", fmt.Sprint(v)), nil
	default:
		return scalar("!!null", "null"), nil
	}
}

// group returns an object or an array, whose first token was read.
func group(d *json.Decoder, open json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if open == '{' {
		n = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	for d.More() {
		item, err := next(d) // also a key
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, item)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("the JSON ends too early")
	}
	return n, nil
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}
