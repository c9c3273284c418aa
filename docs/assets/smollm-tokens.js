// Byte-level byte-pair encoding, as GPT-2's, in which each digit is a token.

// A byte that is no printable letter is written as one from 256 on.
const PRINTABLE = [[33, 126], [161, 172], [174, 255]]
const isPrintable = byte => PRINTABLE.some(([first, last]) => byte >= first && byte <= last)
const LETTERS = []
for (let byte = 0, next = 256; byte < 256; byte++) LETTERS.push(String.fromCodePoint(isPrintable(byte) ? byte : next++))
const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]))
const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu
const DIGIT = /(\p{Nd}|\p{Nl}|\p{No})/u
const CONTROL = 3

export class Tokens {
  constructor(about) {
    this.tokens = about["tokenizer.ggml.tokens"]
    this.numbers = new Map(this.tokens.map((token, i) => [token, i]))
    this.ranks = new Map(about["tokenizer.ggml.merges"].map((pair, rank) => [pair, rank]))
    this.marks = new Set(this.tokens.filter((_, i) => about["tokenizer.ggml.token_type"][i] === CONTROL))
    this.start = about["tokenizer.ggml.bos_token_id"]
  }

  encode(text) {
    return text.split(DIGIT).flatMap(part => part.match(WORDS) ?? []).flatMap(word => this.merged(word))
  }

  /** The tokens of a word: the pair with the lowest rank is merged, again and again. A byte that is no token is left out. */
  merged(word) {
    let parts = Array.from(new TextEncoder().encode(word), byte => LETTERS[byte]).filter(letter => this.numbers.has(letter))
    for (;;) {
      let [best, lowest] = [-1, Infinity]
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity
        if (rank < lowest) [best, lowest] = [i, rank]
      }
      if (best < 0) return parts.map(part => this.numbers.get(part))
      const [one, other] = [parts[best], parts[best + 1]]
      const joined = []
      for (let i = 0; i < parts.length; i++) {
        const both = parts[i] === one && parts[i + 1] === other
        joined.push(both ? one + other : parts[i])
        i += both
      }
      parts = joined
    }
  }

  /** The bytes of a token; of a mark, its name. */
  bytes(number) {
    const token = this.tokens[number]
    return this.marks.has(token) ? new TextEncoder().encode(token) : Uint8Array.from(token, letter => BYTES.get(letter))
  }

  decode(numbers) {
    return new TextDecoder().decode(Uint8Array.from(numbers.flatMap(number => [...this.bytes(number)])))
  }
}
