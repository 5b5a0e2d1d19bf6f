package main

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// The seven messages of the protocol, by hand: generated code would need a compiler of .proto files in every build.

// rawCodec hands messages to the handlers as they are on the wire.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

type request struct {
	pod    []byte
	others [][]byte
}

var errWire = errors.New("not a message of the protocol")

// fields calls visit for each length-delimited field.
func fields(data []byte, visit func(protowire.Number, []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errWire
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return errWire
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return errWire
		}
		data = data[n:]
		if err := visit(number, value); err != nil {
			return err
		}
	}
	return nil
}

func podJSON(message []byte) (json []byte, err error) {
	err = fields(message, func(number protowire.Number, value []byte) error {
		if number == 1 {
			json = value
		}
		return nil
	})
	return json, err
}

func readRequest(data []byte) (r request, err error) {
	err = fields(data, func(number protowire.Number, value []byte) error {
		json, err := podJSON(value)
		switch number {
		case 1:
			r.pod = json
		case 2:
			r.others = append(r.others, json)
		}
		return err
	})
	return r, err
}

// answer writes a PodUsageResponse; both inner messages are always there, as libsidecar does it.
func answer(list []byte, match bool) *[]byte {
	inner := protowire.AppendTag(nil, 1, protowire.BytesType)
	inner = protowire.AppendBytes(inner, list)
	out := protowire.AppendTag(nil, 1, protowire.BytesType)
	out = protowire.AppendBytes(out, inner)
	if match {
		out = protowire.AppendTag(out, 2, protowire.VarintType)
		out = protowire.AppendVarint(out, 1)
	}
	out = protowire.AppendTag(out, 3, protowire.BytesType)
	out = protowire.AppendBytes(out, nil)
	return &out
}

// refusal writes a PodUsageResponse with an error in it.
func refusal(text string) *[]byte {
	inner := protowire.AppendTag(nil, 1, protowire.VarintType)
	inner = protowire.AppendVarint(inner, 1)
	inner = protowire.AppendTag(inner, 2, protowire.BytesType)
	inner = protowire.AppendString(inner, text)
	out := protowire.AppendTag(nil, 3, protowire.BytesType)
	out = protowire.AppendBytes(out, inner)
	return &out
}

func health(healthy bool) *[]byte {
	var out []byte
	if healthy {
		out = protowire.AppendTag(out, 1, protowire.VarintType)
		out = protowire.AppendVarint(out, 1)
	}
	return &out
}
