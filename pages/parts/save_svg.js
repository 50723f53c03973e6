// Saves the chart that a button names (data-chart: its element's key) as the SVG that is on the page.
if (!window.gapscopeSavesSvg) {
  window.gapscopeSavesSvg = true;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.gs-save");
    if (!button) return;
    const key = button.dataset.chart;
    const drawn = document.querySelector(`.st-key-${key} [data-testid="stVegaLiteChart"] svg.marks`);
    if (!drawn) return;
    const text = new XMLSerializer().serializeToString(drawn);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    link.download = `gapscope-${key.replace(/_chart$/, "")}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
