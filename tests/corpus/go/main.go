// Writes files with parquet-go: `go run . FOLDER | (cd ../../..; python -m tests.corpus.manifest)`, with Go 1.24 or later.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/deprecated"
)

const module = "github.com/parquet-go/parquet-go"

type Home struct {
	City *string `parquet:"city,optional"`
	Zip  int32   `parquet:"zip"`
}

type Person struct {
	ID     int64     `parquet:"id"`
	Email  *string   `parquet:"email,optional,dict"`
	Score  *float64  `parquet:"score,optional"`
	Member *bool     `parquet:"member,optional"`
	Born   int32     `parquet:"born,date"`
	Seen   time.Time `parquet:"seen,timestamp(microsecond)"`
	Owed   int64     `parquet:"owed,decimal(2:10)"`
	Phones []string  `parquet:"phones,list"`
	Home   *Home     `parquet:"home,optional"`
}

type Repeated struct {
	ID     int64    `parquet:"id"`
	Words  []string `parquet:"words"`
	Homes  []Home   `parquet:"homes"`
	Nested []struct {
		Numbers []int32 `parquet:"numbers"`
	} `parquet:"nested"`
}

type Encodings struct {
	Delta  int64   `parquet:"delta,delta"`
	Length string  `parquet:"length,delta"`
	Plain  string  `parquet:"plain,plain"`
	Dict   string  `parquet:"dict,dict"`
	Split  float64 `parquet:"split,split"`
	Small  int32   `parquet:"small,optional,delta"`
	Flag   bool    `parquet:"flag"`
}

type Types struct {
	I8    int8               `parquet:"i8"`
	U8    uint8              `parquet:"u8"`
	U16   uint16             `parquet:"u16"`
	U32   uint32             `parquet:"u32"`
	U64   uint64             `parquet:"u64"`
	UUID  [16]byte           `parquet:"uuid,uuid"`
	JSON  string             `parquet:"json,json"`
	Enum  string             `parquet:"enum,enum"`
	Time  int64              `parquet:"time,time(microsecond)"`
	Milli int32              `parquet:"milli,time(millisecond)"`
	Nano  time.Time          `parquet:"nano,timestamp(nanosecond)"`
	Old   deprecated.Int96   `parquet:"old"`
	Bytes []byte             `parquet:"bytes"`
	Fixed [5]byte            `parquet:"fixed"`
	Map   map[string]int32   `parquet:"map"`
	Inner map[string][]int64 `parquet:"inner"`
}

var folder, version string

func told(name, odd string) string {
	file := "go_" + name + ".parquet"
	line, _ := json.Marshal(map[string]string{"file": file, "writer": "parquet-go", "version": version, "odd": odd})
	fmt.Println(string(line))
	return filepath.Join(folder, file)
}

func write[T any](name, odd string, rows []T, options ...parquet.WriterOption) {
	out, err := os.Create(told(name, odd))
	check(err)
	writer := parquet.NewGenericWriter[T](out, options...)
	for start := 0; start < len(rows); start += 15 {
		_, err = writer.Write(rows[start:min(start+15, len(rows))])
		check(err)
	}
	check(writer.Close())
	check(out.Close())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func people(count int) (found []Person) {
	for n := 0; n < count; n++ {
		email, score, member, city := fmt.Sprintf("user%d@example.org", n%17), float64(n)/7, n%3 == 0, fmt.Sprint("city ", n%6)
		row := Person{ID: int64(n), Born: int32(n * 366), Owed: int64(n*137 - 500)}
		row.Seen = time.Date(2024, 2, 28, 23, 59, 58, n*1000, time.UTC).Add(time.Duration(7*n) * time.Hour)
		for phone := 0; phone < n%4; phone++ {
			row.Phones = append(row.Phones, fmt.Sprintf("+%d%d", n, phone))
		}
		if n%5 != 2 {
			row.Email, row.Score, row.Member, row.Home = &email, &score, &member, &Home{&city, int32(1000 + n)}
		}
		found = append(found, row)
	}
	return found
}

func main() {
	folder = os.Args[1]
	build, _ := debug.ReadBuildInfo()
	for _, found := range build.Deps {
		if found.Path == module {
			version = found.Version
		}
	}
	rows := people(40)
	for name, codec := range map[string]compress.Codec{
		"uncompressed": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip,
		"brotli": &parquet.Brotli, "zstd": &parquet.Zstd, "lz4_raw": &parquet.Lz4Raw,
	} {
		write("people_"+name, "codec "+name, rows, parquet.Compression(codec))
	}
	write("people_v1", "V1 data pages", rows, parquet.DataPageVersion(1))
	write("people_v1_zstd", "V1 data pages with statistics", rows, parquet.DataPageVersion(1), parquet.DataPageStatistics(true),
		parquet.Compression(&parquet.Zstd))
	write("people_groups", "row groups of 10 rows", rows, parquet.MaxRowsPerRowGroup(10))
	write("people_bloom", "Bloom filters", rows, parquet.BloomFilters(parquet.SplitBlockFilter(10, "email"), parquet.SplitBlockFilter(10, "id")))
	write("people_bloom_compressed", "compressed Bloom filters", rows, parquet.BloomFilters(parquet.SplitBlockFilter(10, "email")),
		parquet.BloomFilterCompression(&parquet.Gzip))
	write("people_sorted", "sorted rows", rows, parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending("id"))))
	write("people_skip_bounds", "no bounds of a column's pages", rows, parquet.SkipPageBounds("email"))
	write("people_metadata", "user metadata", rows, parquet.KeyValueMetadata("k", "v"), parquet.KeyValueMetadata("größe", "ü"))
	write("people_zero_rows", "no rows", []Person{})
	write("small_pages", "small pages", people(90), parquet.PageBufferSize(128), parquet.DataPageVersion(1))

	var repeated []Repeated
	var encodings []Encodings
	var types []Types
	for n := 0; n < 24; n++ {
		row := Repeated{ID: int64(n)}
		for m := 0; m < n%3; m++ {
			text := fmt.Sprint(n, m)
			row.Words, row.Homes = append(row.Words, text), append(row.Homes, Home{&text, int32(m)})
			row.Nested = append(row.Nested, struct {
				Numbers []int32 `parquet:"numbers"`
			}{[]int32{int32(n), int32(m)}})
		}
		repeated = append(repeated, row)
		encodings = append(encodings, Encodings{int64(n * n), fmt.Sprint("length ", n), fmt.Sprint("plain ", n), fmt.Sprint("dict ", n%3), float64(n) / 3, int32(n), n%2 == 0})
		types = append(types, Types{int8(n), uint8(n + 200), uint16(n + 60000), uint32(n) + 4_000_000_000, uint64(n), [16]byte{1, byte(n)},
			fmt.Sprintf(`{"n":%d}`, n), []string{"RED", "BLUE"}[n%2], int64(n) * 1_000_000, int32(n) * 1000,
			time.Unix(int64(n)*100_000, 7).UTC(), deprecated.Int96{uint32(n), 0, uint32(2_440_588 + n)}, []byte{byte(n)}, [5]byte{byte(n)},
			map[string]int32{"k": int32(n)}, map[string][]int64{"a": {int64(n)}}})
	}
	write("repeated", "repeated fields without LIST", repeated, parquet.DataPageVersion(1))
	write("repeated_v2", "repeated fields without LIST, V2 data pages", repeated)
	write("encodings", "DELTA, BYTE_STREAM_SPLIT and dictionaries, V2 data pages", encodings)
	write("encodings_v1", "DELTA, BYTE_STREAM_SPLIT and dictionaries, V1 data pages", encodings, parquet.DataPageVersion(1))
	write("types", "types of Parquet", types, parquet.DataPageVersion(1))
}
