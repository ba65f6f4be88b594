package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"

	"github.com/unisink/unisink/internal/invariant"
	"github.com/unisink/unisink/internal/mutant"
)

// Kind says what a part is.
type Kind uint8

const (
	kindUnset Kind = iota
	// Base: the part is complete by itself.
	Base
	// Change: the part is to be read after the parts before it, which it names.
	Change
)

// ErrFormat says that a part is damaged or of a newer version.
var ErrFormat = errors.New("state part can't be read")

const (
	frameVersion = 1

	raw  = 0
	comp = 1

	// worthwhile is the size from which compression is tried, bytes.
	worthwhile = 1 << 10
	// compressWindow is how far back the compressor looks, and with it the memory that it needs, bytes.
	compressWindow = 1 << 20
	// maxPart bounds what a damaged length can make us allocate, bytes.
	maxPart = 1 << 30
)

// The frame of a part: version, kind, codec (one byte each), length of the payload (uvarint), the payload, raw
// or compressed, and a CRC-32C of all before it, little endian.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Framer puts payloads into frames and takes them out. It keeps its compressor from one time to the
// next, has no goroutines, and is used by one at a time; the zero value is ready.
type Framer struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// AppendSealed appends a payload in a frame to dst, compressed where that saves something.
func (f *Framer) AppendSealed(dst []byte, kind Kind, payload []byte) ([]byte, error) {
	if len(payload) > maxPart {
		return nil, fmt.Errorf("%d bytes of one key group are too many for a part of the state, which holds %d; give the pipeline more key groups",
			len(payload), maxPart)
	}
	begin := len(dst)
	out := append(dst, frameVersion, byte(kind), raw)
	out = binary.AppendUvarint(out, uint64(len(payload)))
	head := len(out)
	if len(payload) >= worthwhile {
		out[begin+2] = comp
		out = f.compressor().EncodeAll(payload, out)
	}
	if out[begin+2] == raw || len(out)-head >= len(payload) {
		out[begin+2] = raw
		out = append(out[:head], payload...)
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out[begin:], castagnoli)), nil
}

// Open checks a frame and returns its payload, which may be a part of the frame.
func (f *Framer) Open(frame []byte) (Kind, []byte, error) {
	bad := func(what string) (Kind, []byte, error) {
		return kindUnset, nil, fmt.Errorf("%w: %s", ErrFormat, what)
	}
	if len(frame) < 8 {
		return bad("too short")
	}
	body, sum := frame[:len(frame)-4], binary.LittleEndian.Uint32(frame[len(frame)-4:])
	if crc32.Checksum(body, castagnoli) != sum && !mutant.On("state/checksum") {
		return bad("its checksum differs")
	}
	if body[0] != frameVersion {
		return bad(fmt.Sprintf("version %d is newer than this program", body[0]))
	}
	kind, codec := Kind(body[1]), body[2]
	if kind != Base && kind != Change {
		return bad("unknown kind of part")
	}
	size, n := binary.Uvarint(body[3:])
	if n <= 0 || size > maxPart {
		return bad("bad length")
	}
	payload := body[3+n:]
	switch codec {
	case raw:
	case comp:
		var err error
		if payload, err = f.decompressor().DecodeAll(payload, nil); err != nil {
			return bad(err.Error())
		}
	default:
		return bad("unknown compression")
	}
	if uint64(len(payload)) != size {
		return bad("its length differs")
	}
	return kind, payload, nil
}

func (f *Framer) compressor() *zstd.Encoder {
	if f.encoder == nil {
		var err error
		f.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false), zstd.WithWindowSize(compressWindow))
		invariant.Must(err == nil, "the options of the compressor are constant: %v", err)
	}
	return f.encoder
}

func (f *Framer) decompressor() *zstd.Decoder {
	if f.decoder == nil {
		var err error
		f.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPart))
		invariant.Must(err == nil, "the options of the decompressor are constant: %v", err)
	}
	return f.decoder
}
