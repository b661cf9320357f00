// The encoder of GIF animations, which the build bundles for the pages that play films.
export { applyPalette, GIFEncoder, quantize } from "gifenc";
