// What a GGUF file holds: its fields, its tensors, and their numbers in the form that the product reads.

const SIZES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 }
const TYPES = { 0: { block: 1, bytes: 4 }, 3: { block: 32, bytes: 20 }, 8: { block: 32, bytes: 34 } }  // float32, Q4_1, Q8_0
export const ROW = { 4: 24, 8: 36 }  // bytes of 32 numbers here: factors are float32, in words of their own

/** Fields and tensors: of each tensor its sizes, its type and its bytes. */
export function parse(buffer) {
  const view = new DataView(buffer)
  const text = new TextDecoder()
  let at = 0
  const u32 = () => view.getUint32((at += 4) - 4, true)
  const u64 = () => Number(view.getBigUint64((at += 8) - 8, true))
  const string = () => {
    const length = u64()
    return text.decode(new Uint8Array(buffer, (at += length) - length, length))
  }
  const read = {
    4: u32, 5: () => view.getInt32((at += 4) - 4, true), 6: () => view.getFloat32((at += 4) - 4, true),
    7: () => view.getUint8(at++) !== 0, 8: string, 10: u64,
  }
  function value(kind) {
    if (kind !== 9) return read[kind] ? read[kind]() : void (at += SIZES[kind])
    const [inner, count] = [u32(), u64()]
    return Array.from({ length: count }, () => value(inner))
  }
  if (u32() !== 0x46554747) throw new Error("no GGUF file")
  u32()
  const [tensors, fields] = [u64(), u64()]
  const about = {}
  for (let i = 0; i < fields; i++) {
    const key = string()
    about[key] = value(u32())
  }
  const found = Array.from({ length: tensors }, () => {
    const name = string()
    const sizes = Array.from({ length: u32() }, u64)
    return { name, sizes, type: u32(), offset: u64() }
  })
  const align = about["general.alignment"] ?? 32
  const start = Math.ceil(at / align) * align
  const named = found.map(({ name, sizes, type, offset }) => {
    if (!TYPES[type]) throw new Error(`${name} has the type ${type}`)
    const { block, bytes } = TYPES[type]
    const length = sizes.reduce((a, b) => a * b) / block * bytes
    return [name, { sizes, type, bytes: new Uint8Array(buffer, start + offset, length) }]
  })
  return { about, tensors: Object.fromEntries(named) }
}

/** A number of 16 bits. */
export function half(bits) {
  const [sign, power, rest] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023]
  if (power === 0) return sign * rest * 2 ** -24
  return power === 31 ? (rest ? NaN : sign * Infinity) : sign * (1 + rest / 1024) * 2 ** (power - 15)
}

/** Where a tensor's rows go: a matrix's blocks, whose factors of 16 bits become float32. */
export function pack({ type, bytes }, memory, to) {
  const { bytes: size } = TYPES[type]
  const [from, into] = [new DataView(bytes.buffer, bytes.byteOffset), new DataView(memory)]
  const target = new Uint8Array(memory)
  const [numbers, step] = type === 3 ? [16, ROW[4]] : [32, ROW[8]]
  for (let i = 0, at = 0; at < bytes.length; i++, at += size) {
    const place = to + i * step
    target.set(bytes.subarray(at + size - numbers, at + size), place)
    for (let factor = 0; factor < (size - numbers) / 2; factor++)
      into.setFloat32(place + numbers + 4 * factor, half(from.getUint16(at + 2 * factor, true)), true)
  }
}
